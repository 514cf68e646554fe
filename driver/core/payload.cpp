#include "driver/core/payload.h"

#include <utility>

#include <fmt/format.h>

#include "cases/case_groups.h"
#include "cases/case_id.h"
#include "cases/case_json.h"
#include "cases/lengths.h"
#include "driver/core/case_shape.h"

namespace cp_pool {

namespace {

// Number of sequences; with more the request could exceed kMaxLineBytes.
constexpr std::int64_t kMaxToldLengths = 65536;

bool knows(const nlohmann::json& capabilities, const CaseField& field) {
  return field.in_version_1 || lists(capabilities, "case_fields", field.name);
}

class Attention final : public Payload::Kind {
 public:
  explicit Attention(Case c) : c_(std::move(c)) {}

  [[nodiscard]] nlohmann::ordered_json json() const override { return to_json(c_); }
  [[nodiscard]] const char* key() const override { return "case"; }

  [[nodiscard]] int ranks() const override { return world_size(c_); }
  [[nodiscard]] std::string group() const override {
    return fmt::format("{}/{}/{}", c_.suite, c_.model, to_string(c_.dtype));
  }
  [[nodiscard]] std::string default_id() const override { return case_id(c_, {}); }

  // Protocol version 1 lets a worker ignore unknown fields. A worker that does not know a field must not get a case in
  // which the field matters: it would compute another problem, and pass.
  [[nodiscard]] std::string unknown_to_worker(const nlohmann::json& capabilities) const override {
    for (const CaseField& field : case_fields()) {
      if (knows(capabilities, field) || is_default(field, c_)) continue;
      return fmt::format(
          "the worker does not know the case field {0} (here {1}): its capabilities.case_fields does not list it",
          field.name, field_text(field, c_));
    }
    return {};
  }
  void put_into(protocol::RunRequest& request, const nlohmann::json& capabilities) const override {
    request.case_json = for_worker(capabilities);
    request.lengths = lengths();
  }
  bool put_into(protocol::PrepareRequest& request, const nlohmann::json& capabilities) const override {
    request.case_json = for_worker(capabilities);
    request.lengths = lengths();
    return true;
  }

  [[nodiscard]] bool has_figures() const override { return true; }
  [[nodiscard]] PerfFigures figures(const protocol::PerfResult& measured) const override {
    const SequenceLengths lengths = resolve_lengths(c_);
    const auto ranks = static_cast<double>(c_.cp_size);
    double flops = 0;
    for (int rank = 0; rank < c_.cp_size; ++rank) {
      const Compute compute = compute_of(c_, lengths, rank);
      flops += compute.forward_flops(c_) + (c_.training ? compute.backward_flops(c_) : 0);
    }
    PerfFigures out{measured};
    const double seconds = out.ms() / 1e3;
    out.tflops = flops / ranks / seconds / 1e12;
    const Traffic traffic = traffic_of(c_, lengths);
    if (!out.bytes_sent) out.bytes_sent = traffic.forward + traffic.backward;
    out.gbytes_per_s = static_cast<double>(*out.bytes_sent) / seconds / 1e9;
    if (measured.one_rank_ms && out.ms() > 0) out.efficiency = measured.one_rank_ms->median / (ranks * out.ms());
    return out;
  }

  [[nodiscard]] std::string suite() const override { return c_.suite; }
  [[nodiscard]] std::string model() const override { return c_.model; }
  [[nodiscard]] std::string column() const override {
    return fmt::format("{} {}", to_string(c_.comm), to_string(c_.layout));
  }
  [[nodiscard]] const Case* attention() const override { return &c_; }

 private:
  // Fields beyond version 1 are left out unless the worker lists them.
  [[nodiscard]] nlohmann::json for_worker(const nlohmann::json& capabilities) const {
    nlohmann::json out = json();
    for (const CaseField& field : case_fields()) {
      if (!knows(capabilities, field)) out.erase(std::string(field.name));
    }
    return out;
  }
  [[nodiscard]] nlohmann::json lengths() const {
    return c_.batch > kMaxToldLengths ? nlohmann::json::object() : nlohmann::json(to_json(resolve_lengths(c_)));
  }

  Case c_;
};

class FunctionCall final : public Payload::Kind {
 public:
  explicit FunctionCall(Call call) : call_(std::move(call)) {}

  [[nodiscard]] nlohmann::ordered_json json() const override { return to_json(call_); }
  [[nodiscard]] const char* key() const override { return "call"; }

  [[nodiscard]] int ranks() const override { return call_.cp_size; }
  [[nodiscard]] std::string group() const override { return {}; }
  [[nodiscard]] std::string default_id() const override { return call_id(call_); }

  [[nodiscard]] std::string unknown_to_worker(const nlohmann::json& capabilities) const override {
    const auto offered = capabilities.find("calls");
    if (offered != capabilities.end() && *offered == true) return {};
    return "the worker runs no calls: its capabilities have no \"calls\":true";
  }
  void put_into(protocol::RunRequest& request, const nlohmann::json& /*capabilities*/) const override {
    request.call = {{"function", call_.function}, {"arguments", call_.arguments}};
    request.options = {};  // all are about attention
  }
  bool put_into(protocol::PrepareRequest& /*request*/, const nlohmann::json& /*capabilities*/) const override {
    return false;
  }

  [[nodiscard]] bool has_figures() const override { return false; }
  [[nodiscard]] PerfFigures figures(const protocol::PerfResult& measured) const override { return {measured}; }

  [[nodiscard]] std::string suite() const override { return std::string(module_of(call_)); }
  [[nodiscard]] std::string model() const override { return std::string(name_of(call_)); }
  [[nodiscard]] std::string column() const override {
    return fmt::format("{} rank{}", call_.cp_size, call_.cp_size == 1 ? "" : "s");
  }
  [[nodiscard]] const Case* attention() const override { return nullptr; }

 private:
  Call call_;
};

}  // namespace

Payload::Payload(const Call& call) : kind_(std::make_shared<FunctionCall>(call)) {}
Payload::Payload(const Case& c) : kind_(std::make_shared<Attention>(c)) {}

Payload Payload::read(const nlohmann::json& json, std::string_view source) {
  if (json.contains("function")) return parse_call(json, source);
  return parse_case(json, source);
}

bool Payload::operator==(const Payload& other) const {
  return kind_ == other.kind_ || kind_->json() == other.kind_->json();
}

void expect_valid(const PerfFigures& figures) {
  expect_valid(static_cast<const protocol::PerfResult&>(figures));
  protocol::expect_valid(figures.step_ms);
}

}  // namespace cp_pool
