#include "cp_core/diagnosis/diagnose.h"

#include "cp_core/diagnosis/hypotheses.h"

namespace cp_pool::diagnosis {

Diagnosis diagnose(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
                   const Settings& settings) {
  return explain(implementation, judged, nullptr, groups, settings);
}

}  // namespace cp_pool::diagnosis
