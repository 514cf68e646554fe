// Tries whether a worker keeps to the protocol (docs/protocol.md): a verdict for each rule.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "driver/conformance/session.h"

namespace cp_pool::conformance {

enum class Verdict {
  ok,
  broken,    // the protocol asks for it
  absent,    // the worker may leave it out
  untested,  // this worker gives no way to try it
};
std::string_view to_string(Verdict verdict);  // "BROKEN" for broken

struct Finding {
  Verdict verdict = Verdict::ok;
  std::string rule;
  std::string text;  // what was seen
  std::string hint;  // what to do about it; empty if it is ok
};

struct Tally {
  int ok = 0;
  int broken = 0;
  int absent = 0;
  int untested = 0;
  bool started = false;  // the worker got ready at least once
};

// Runs through all rules; tell is called with each verdict as it is known. Call it on the main thread; while it runs,
// every child of the process is its own. Throws Interrupted.
class Conformance {
 public:
  Conformance(Config config, std::function<void(const Finding&)> tell);
  Tally run();

 private:
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

  // conformance_requests.cpp
  void check_unknown_fields();
  void check_unknown_op();
  void check_deep_line();
  void check_long_line();
  // True if the case has its answer with what was `sent` too.
  bool expect_same_answer(const char* rule, const nlohmann::json& request, const std::string& sent,
                          const std::string& hint);

  // conformance_faults.cpp
  void check_busy_worker();
  void check_busy_ping(Session& session, std::int64_t seq);
  void check_cancel(Session& session, std::int64_t seq);
  void check_throw(int rank);
  void check_kill(int rank);

  // One whose ranks have this fault; null, and each rule is told as untested, if it does not get ready or no case
  // passes without.
  std::unique_ptr<Session> with_fault(const std::string& fault, const std::vector<std::string>& rules);

  // A session that works: the last one, or a fresh one; null, and the rule is told as untested, if none gets ready.
  Session* warm_for(const std::string& rule);
  // Else the rule is told as untested.
  bool has_case(const std::string& rule);
  // Like run(request), on a warm session; nullopt, and the rule is told, if there is none or the answer is not as it
  // must be.
  std::optional<protocol::ResultEvent> ask(const char* rule, const nlohmann::json& request, const std::string& hint);
  // What to do about the trouble: of a number that JSON does not have, how to write it.
  static std::string hint_for(const std::string& trouble, const std::string& otherwise);
  void tell(Verdict verdict, std::string rule, std::string text, std::string hint = "");

  static constexpr const char* kNoCase = "no case has an answer";

  Config config_;
  std::function<void(const Finding&)> tell_;
  Stage stage_;
  std::unique_ptr<Session> warm_;
  nlohmann::json case_request_;  // `run` of a case that the worker answers; null: there is none
  CaseOutcome case_outcome_ = CaseOutcome::pass;
  std::optional<double> ping_ms_;  // of the first ping; none: no pong
  bool takes_unknown_fields_ = true;
  Tally tally_;
};

}  // namespace cp_pool::conformance
