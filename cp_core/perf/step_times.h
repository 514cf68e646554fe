// Measures how long a step of all ranks takes.
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
  bool graph = false;   // on GPUs: whether the timed steps are replays of a CUDA graph of the step
  // If set, one more step of all ranks and one of rank 0 alone are traced, to files <trace>.rank0.* and so on.
  std::optional<std::filesystem::path> trace = std::nullopt;
  // The deadline of the case. The steps of rank 0 alone, for which the other ranks wait, end earlier.
  Communicator::Clock::time_point deadline = Communicator::Clock::time_point::max();
};

// A point at which the devices of all ranks wait for each other.
class MeetingPoint {
 public:
  MeetingPoint(Communicator& cp, const at::Device& device);

  void pass(std::string_view what);

 private:
  Communicator& cp_;
  at::Tensor here_;
};

// Runs and times steps. Collective over cp. The ranks begin each step together, and the host enqueues it while the
// device runs the previous one, as in training. Returns the milliseconds of each timed step.
std::vector<double> time_steps(Communicator& cp, const at::Device& device, const PerfOptions& options,
                               const std::function<void()>& step);

}  // namespace cp_pool
