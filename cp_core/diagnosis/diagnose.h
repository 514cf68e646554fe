// Finds out why a case failed, from inputs, results and repeated runs alone. It never looks inside the implementation
// under test.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>
#include <vector>

#include "cases/diagnosis.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/run_case/implementation.h"
#include "cp_core/run_case/judged_case.h"

namespace cp_pool::diagnosis {

struct Settings {
  // No further step of the implementation is begun after this time. Rank 0's clock decides for all ranks.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  // Rank 0 tries no further hypothesis when the thread that called diagnose() has used this much more CPU time.
  std::chrono::nanoseconds cpu_limit = std::chrono::nanoseconds::max();
  std::chrono::milliseconds limit{0};              // the time that the whole diagnosis may take, for sentences about it
  std::function<void(std::string_view)> on_phase;  // called with a description before each question
  std::vector<KnownMistake> known = {};            // are tried before all questions; only rank 0's are read
  bool own_dtype = false;                          // asks nothing in another dtype than that of the case
};

// Collective over groups.cp: every rank passes its own view of the same judged case. Only rank 0 gets the answer; other
// ranks get an empty one. Throws CommError, and whatever the implementation throws.
Diagnosis diagnose(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
                   const Settings& settings);

}  // namespace cp_pool::diagnosis
