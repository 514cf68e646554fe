// How long a step of a case takes, forward and backward, and how long the same problem takes one rank alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>

#include "cases/case.h"
#include "cases/case_report.h"
#include "cases/lengths.h"
#include "cp_core/comm/communicator.h"

namespace cp_pool {

struct PerfOptions {
  int warmup = 5;       // steps before the timed ones; not negative
  int iterations = 20;  // timed steps; at least 1
  bool graph = false;   // on GPUs: the timed steps are replays of a CUDA graph of the step
  // If set, one more step of all ranks is traced, and one of rank 0 alone, to files <trace>.rank0.* and so on
  // (step_trace.h).
  std::optional<std::filesystem::path> trace = std::nullopt;
  // The deadline of the case. The part of rank 0 alone, for which the others wait, ends earlier.
  Communicator::Clock::time_point deadline = Communicator::Clock::time_point::max();
};

// Inputs are made before the clock runs, and nothing is verified. The messages of an extra first step are counted. The
// ranks begin each timed step together, and the host enqueues it while the device runs the one before, as in training.

// Collective over groups.cp: runs the steps of all ranks and fills step_ms and bytes_sent. Throws CommError, or
// whatever a library throws.
void time_case(const Case& c, const SequenceLengths& lengths, const CpGroups& groups, const PerfOptions& options,
               const at::Device& device, StepTimes& into);

// Collective over groups.cp: rank 0 runs the same sequences with cp_size 1, and the others wait for it. Fills
// one_rank_ms and one_rank_reason.
void time_one_rank(const Case& c, const SequenceLengths& lengths, const CpGroups& groups, const PerfOptions& options,
                   const at::Device& device, StepTimes& into);

// The timing loop. Collective over cp.
std::vector<double> time_steps(Communicator& cp, const at::Device& device, const PerfOptions& options,
                               const std::function<void()>& step);

}  // namespace cp_pool
