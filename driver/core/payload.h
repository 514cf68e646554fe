// What an item of a run asks its ranks to compute. The driver schedules items without reading their payloads: whatever
// depends on the kind of a payload asks it through Payload::Kind, whose other kinds answer with nothing where a
// question makes no sense for them. A payload is an attention case or a call.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "cases/call.h"
#include "cases/case.h"
#include "cases/fields.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

struct PerfFigures : protocol::PerfResult {  // bytes_sent: also set if the worker did not count them
  double tflops = 0;        // 1e12 floating point operations per second of one rank, counting visible pairs only
  double gbytes_per_s = 0;  // bytes_sent in 1e9 bytes per second
  std::optional<double> efficiency = std::nullopt;  // one_rank_ms / (ranks * ms); none if one_rank_ms was not measured
  // ms() of the same problem in the run that this one is compared with
  std::optional<double> baseline_ms = std::nullopt;

  // Median over the timed steps of the time of the slowest rank.
  [[nodiscard]] double ms() const { return step_ms.median; }
  // Returns ms / baseline_ms.
  [[nodiscard]] std::optional<double> ratio() const {
    return baseline_ms && *baseline_ms > 0 ? std::optional(ms() / *baseline_ms) : std::nullopt;
  }

  static constexpr auto fields() {
    return FieldList{field("ms", [](auto& of) -> auto& { return of.step_ms.median; }),
                     field("min_ms", [](auto& of) -> auto& { return of.step_ms.min; }),
                     field("max_ms", [](auto& of) -> auto& { return of.step_ms.max; }),
                     field("warmup", [](auto& of) -> auto& { return of.request.warmup; }),
                     field("iterations", [](auto& of) -> auto& { return of.request.iterations; }),
                     field("graph", [](auto& of) -> auto& { return of.request.graph; }),
                     optional<&PerfFigures::tflops, &PerfFigures::gbytes_per_s, &PerfFigures::efficiency>()} +
           StepMeasurements::fields() +
           FieldList{optional<&PerfFigures::baseline_ms, &PerfFigures::ratio, &PerfFigures::ranks>()};
  }
};
// Like the overloads in worker/protocol/messages.h.
void expect_valid(const PerfFigures& figures);

// Whether the list `name` in a worker's capabilities has this entry, as in {"options":["bound_factor"]}.
inline bool lists(const nlohmann::json& capabilities, const char* name, std::string_view entry) {
  const auto list = capabilities.find(name);
  return list != capabilities.end() && list->is_array() &&
         std::ranges::find(*list, nlohmann::json(entry)) != list->end();
}

// A value that is cheap to copy and never changes.
class Payload {
 public:
  class Kind;

  Payload() : Payload(Case{}) {}
  Payload(const Case& c);     // NOLINT(google-explicit-constructor): a case is a payload
  Payload(const Call& call);  // NOLINT(google-explicit-constructor): and so is a call
  explicit Payload(std::shared_ptr<const Kind> kind) : kind_(std::move(kind)) {}

  // The keys of Kind::key.
  static constexpr std::array kKeys{"case", "call"};
  // Reads what Kind::json has returned, of any kind. Throws CaseError, which names `source` and the JSON path.
  static Payload read(const nlohmann::json& json, std::string_view source);

  const Kind* operator->() const { return kind_.get(); }
  bool operator==(const Payload& other) const;

 private:
  std::shared_ptr<const Kind> kind_;
};

class Payload::Kind {
 public:
  virtual ~Kind() = default;

  [[nodiscard]] virtual nlohmann::ordered_json json() const = 0;
  // Under which key events and messages have its JSON.
  [[nodiscard]] virtual const char* key() const = 0;

  // --- For scheduling
  // How many ranks it needs.
  [[nodiscard]] virtual int ranks() const = 0;
  // A text that is equal for all payloads that share expected results: for cases of one suite, model and dtype, most of
  // which differ in layout and communication type alone. A pool keeps the results that it has computed
  // (cp_core/verify/expected_cache.h), so such payloads are better run by one pool, one after another.
  [[nodiscard]] virtual std::string group() const = 0;
  // The ID of an item that was given none.
  [[nodiscard]] virtual std::string default_id() const = 0;

  // --- For the requests to a worker, whose ready event has these capabilities
  // Why the worker must not get it, as a sentence; empty if it may.
  [[nodiscard]] virtual std::string unknown_to_worker(const nlohmann::json& capabilities) const = 0;
  virtual void put_into(protocol::RunRequest& request, const nlohmann::json& capabilities) const = 0;
  // Returns whether a worker can prepare for it.
  virtual bool put_into(protocol::PrepareRequest& request, const nlohmann::json& capabilities) const = 0;

  // --- For judging results
  // Whether a pass needs the figures of each rank, if the worker promises figures.
  [[nodiscard]] virtual bool has_figures() const = 0;
  // Of a case: counts the operations that `cp-pool explain` names (case_shape.h). Bytes are those that the worker
  // counted, or those that `cp-pool explain` names if it did not count them.
  [[nodiscard]] virtual PerfFigures figures(const protocol::PerfResult& measured) const = 0;

  // --- For reports
  [[nodiscard]] virtual std::string suite() const = 0;  // may be empty, as may be the model
  [[nodiscard]] virtual std::string model() const = 0;  // what the items of a suite are divided by
  // What the table of a page divides the items of a model by.
  [[nodiscard]] virtual std::string column() const = 0;

  // The attention case; nullptr for a payload of another kind.
  [[nodiscard]] virtual const Case* attention() const = 0;
};

}  // namespace cp_pool
