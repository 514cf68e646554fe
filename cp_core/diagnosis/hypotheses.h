// Tests known mistakes of context-parallel attention against what the ranks returned. Each mistake is a small change of
// the fp64 definition or of its results.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cases/diagnosis.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/diagnosis/diagnose.h"
#include "cp_core/diagnosis/seen_keys.h"
#include "cp_core/trial/implementation.h"
#include "cp_core/trial/judged_case.h"

namespace cp_pool::diagnosis {

// Observes which keys each query saw. Collective.
using LookAtKeys = std::function<SeenKeys()>;

// Finds the mistakes that explain the case and another seed of it. Calls `look` on every rank if none does, or if what
// does changes the keys that queries see. Collective over groups.cp. Only rank 0 gets the answer.
Diagnosis explain(Implementation& implementation, const JudgedCase& judged, const LookAtKeys& look,
                  const CpGroups& groups, const Settings& settings);

// Tries only the mistakes of settings.known, on the case and on another seed (Explainer::confirmation). Collective;
// whether there is an answer is the same on every rank, and only rank 0 gets its content.
std::optional<Diagnosis> confirm(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
                                 const Settings& settings);

}  // namespace cp_pool::diagnosis
