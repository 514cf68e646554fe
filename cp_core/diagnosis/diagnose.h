// Why a case failed. Looks at inputs, results and repeated runs of what is under test alone, never inside it.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>

#include "cases/diagnosis.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/trial/implementation.h"
#include "cp_core/trial/judged_case.h"

namespace cp_pool::diagnosis {

struct Settings {
  // When no further question is begun. Ranks agree on it by rank 0's clock.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  std::function<void(std::string_view)> on_phase;  // called when a question is begun
};

// Collective over groups.cp: all ranks call it with what each keeps of the same case, and rank 0 gets the answer; what
// other ranks get is empty. Throws CommError, or whatever the implementation throws.
Diagnosis diagnose(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
                   const Settings& settings);

}  // namespace cp_pool::diagnosis
