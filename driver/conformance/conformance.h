// Tests whether a worker follows the protocol (docs/protocol.md) and gives a verdict for each rule.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cases/enum_names.h"
#include "driver/conformance/session.h"

namespace cp_pool {

enum class Compliance {
  ok,
  broken,    // the worker violates a rule that the protocol requires
  absent,    // the worker lacks something optional
  untested,  // the rule could not be tested with this worker
};
template <>
inline constexpr std::array<std::pair<Compliance, std::string_view>, 4> kNames<Compliance>{
    {{Compliance::ok, "ok"},
     {Compliance::broken, "BROKEN"},
     {Compliance::absent, "absent"},
     {Compliance::untested, "untested"}}};

}  // namespace cp_pool

namespace cp_pool::conformance {

struct Finding {
  Compliance verdict = Compliance::ok;
  std::string rule;
  std::string text;  // what was observed
  std::string hint;  // how to mend it; empty if the verdict is ok
};

struct Tally {
  std::map<Compliance, int> rules;  // number of rules
  bool started = false;             // the worker got ready at least once
};

// Tests all rules and calls `tell` with each verdict as soon as it is known. run() must be called on the main thread,
// and reaps every child of the process meanwhile. It throws Interrupted.
class Conformance {
 public:
  Conformance(RunConfig config, int ranks, std::function<void(const Finding&)> tell);
  Tally run();

 private:
  using enum Compliance;

  // conformance.cpp
  void check_start();
  void check_stdout();
  void check_ping();
  void check_stacks();
  void check_end(const char* rule, const std::function<void(Session&)>& end);

  // conformance_cases.cpp
  void check_case();
  void check_figures(const protocol::ResultEvent& result);
  void check_fences();
  void check_impossible_case();
  void check_unknown_function();
  // Runs a request on the warm session that `what` names and that no worker can judge: a pass or a fail of it is wrong.
  void check_not_judged(const char* rule, const nlohmann::json& request, const std::string& what, const char* hint);
  void check_unknown_fields();
  void check_unknown_op();
  void check_large_lines();
  // Asks for `request`, the known case with an addition that `sent` describes. Returns false if the case does not have
  // the same outcome as without the addition.
  bool expect_same_answer(const char* rule, const nlohmann::json& request, const std::string& sent,
                          const std::string& hint);

  // conformance_faults.cpp
  void check_busy_worker();
  void check_busy_ping(Session& session, std::int64_t seq);
  void check_cancel(Session& session, std::int64_t seq);
  void check_throw(int rank);
  void check_kill(int rank);

  // Returns a session whose ranks have this fault. If no case passes without the fault, or the worker does not get
  // ready with it, returns null and tells each of `rules` as untested.
  std::unique_ptr<Session> with_fault(const std::string& fault, const std::vector<std::string>& rules);

  // Returns a session that works: the last one, or a new one. If none gets ready, returns null and tells the rule as
  // untested.
  Session* warm_for(const std::string& rule);
  // Whether a case with an answer is known. If not, tells the rule as untested.
  bool has_case(const std::string& rule);
  // Runs the request on a warm session. If there is none, or the answer is not a proper result, returns nullopt and
  // tells the rule.
  std::optional<protocol::ResultEvent> ask(const char* rule, const nlohmann::json& request, const std::string& hint);
  // Returns a hint for the trouble: how to write NaN and Infinity if they caused it, else `otherwise`.
  static std::string hint_for(const std::string& trouble, const std::string& otherwise);
  void tell(Compliance verdict, std::string rule, std::string text, std::string hint = "");

  static constexpr const char* kNoCase = "no case has an answer";

  RunConfig config_;
  int ranks_;
  std::function<void(const Finding&)> tell_;
  Stage stage_;
  std::unique_ptr<Session> warm_;
  nlohmann::json case_request_;  // `run` request of a case that the worker answers; null: there is none
  CaseOutcome case_outcome_ = CaseOutcome::pass;
  std::optional<double> ping_ms_;  // time of the first pong; none: no pong came
  bool takes_unknown_fields_ = true;
  Tally tally_;
};

}  // namespace cp_pool::conformance
