// How long a step takes that all ranks take together.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

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

// Where the devices of all ranks wait for each other.
class MeetingPoint {
 public:
  MeetingPoint(Communicator& cp, const at::Device& device);

  void pass(std::string_view what);

 private:
  Communicator& cp_;
  at::Tensor here_;
};

// The timing loop. Collective over cp. The ranks begin each timed step together, and the host enqueues it while the
// device runs the one before, as in training. Gives the milliseconds of each timed step.
std::vector<double> time_steps(Communicator& cp, const at::Device& device, const PerfOptions& options,
                               const std::function<void()>& step);

}  // namespace cp_pool
