// Tests known mistakes of context-parallel attention against what the ranks returned. Each mistake is a small change of
// the fp64 definition or of its results.
#pragma once

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

// Fills certainty, id, cause, explains, others and evidence of a Diagnosis. seen: what was observed of the mask, to
// name it in sentences; may be null. Collective over groups.cp, since a hypothesis that fits is tried on another seed.
// Only rank 0 gets the answer.
Diagnosis explain(Implementation& implementation, const JudgedCase& judged, const SeenKeys* seen,
                  const CpGroups& groups, const Settings& settings);

// Tries only the mistakes of settings.known, on the case and on another seed. nullopt unless exactly one of them
// explains both. Collective; whether there is an answer is the same on every rank, and only rank 0 gets its content.
std::optional<Diagnosis> confirm(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
                                 const Settings& settings);

}  // namespace cp_pool::diagnosis
