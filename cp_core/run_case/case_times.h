// Measures how long a step of a case takes, forward and backward, and how long the same problem takes on one rank.
#pragma once

#include <c10/core/Device.h>

#include "cases/case.h"
#include "cases/case_report.h"
#include "cases/lengths.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/perf/step_times.h"
#include "cp_core/run_case/implementation.h"

namespace cp_pool {

// Inputs are made before the clock starts, and nothing is verified. An extra first step counts the bytes sent.

// Collective over groups.cp. Runs the steps on all ranks and fills step_ms and bytes_sent; writes a trace if asked to.
// Throws CommError, and whatever a library throws.
void time_case(Implementation& implementation, const Case& c, const SequenceLengths& lengths,
               const verify::RankView& view, const CpGroups& groups, const PerfOptions& options, StepTimes& into);

// Collective over groups.cp. Rank 0 runs the same sequences with cp_size 1 while the others wait. Fills one_rank_ms, or
// else one_rank_reason, on rank 0.
void time_one_rank(Implementation& implementation, const Case& c, const SequenceLengths& lengths,
                   const CpGroups& groups, const PerfOptions& options, const at::Device& device, StepTimes& into);

}  // namespace cp_pool
