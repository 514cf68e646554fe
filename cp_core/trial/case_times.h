// How long a step of a case takes, forward and backward, and how long the same problem takes one rank alone.
#pragma once

#include <c10/core/Device.h>

#include "cases/case.h"
#include "cases/case_report.h"
#include "cases/lengths.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/perf/step_times.h"
#include "cp_core/trial/implementation.h"

namespace cp_pool {

// Inputs are made before the clock runs, and nothing is verified. The messages of an extra first step are counted.

// Collective over groups.cp: runs the steps of all ranks and fills step_ms and bytes_sent. Throws CommError, or
// whatever a library throws.
void time_case(Implementation& implementation, const Case& c, const SequenceLengths& lengths,
               const verify::RankView& view, const CpGroups& groups, const PerfOptions& options, StepTimes& into);

// Collective over groups.cp: rank 0 runs the same sequences with cp_size 1, and the others wait for it. Fills
// one_rank_ms and one_rank_reason.
void time_one_rank(Implementation& implementation, const Case& c, const SequenceLengths& lengths,
                   const CpGroups& groups, const PerfOptions& options, const at::Device& device, StepTimes& into);

}  // namespace cp_pool
