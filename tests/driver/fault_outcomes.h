// The faults of the fake worker that a test may draw, and the outcomes that a case with each of them may have.
#pragma once

#include <map>
#include <set>
#include <string>

namespace cp_pool::driver_test {

inline const std::map<std::string, std::set<std::string>>& fault_outcomes() {
  static const std::map<std::string, std::set<std::string>> outcomes{
      {"sigsegv", {"crash"}},
      {"sigkill", {"crash"}},
      {"exit0", {"crash"}},
      {"exit3", {"crash"}},
      {"hang", {"timeout"}},
      {"setsid_grandchild_then_exit", {"crash"}},
      {"garbage_after_sentinel", {"crash"}},
      {"half_result_then_exit", {"crash"}},
      {"wrong_seq", {"crash"}},
      {"closes_stdout", {"crash"}},
      {"closes_stdin", {"pass"}},
      {"two_results", {"pass"}},
      {"garbage_when_idle", {"pass"}},
      {"result_then_death", {"pass"}},
      {"fail_then_exit", {"fail", "crash"}},
      {"error_then_exit", {"error", "crash"}},
      {"die_before_started", {"crash"}},
      {"unhealthy", {"error"}},
      {"refuse", {"error"}},
      {"no_fence", {"error"}},
      {"invalid_utf8", {"error"}},
      {"daemon", {"pass"}},
      {"chatter_stdout", {"pass"}},
      {"diag_good", {"fail"}},
      {"diag_exit", {"fail"}},
      {"diag_garbage", {"fail"}},
  };
  return outcomes;
}

}  // namespace cp_pool::driver_test
