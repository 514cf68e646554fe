// Traces a step, kernel by kernel and call by call, to show where its time goes.
#pragma once

#include <filesystem>
#include <functional>

#include <c10/core/Device.h>

namespace cp_pool {

// Runs `step`, which must have the device's work done when it returns, under LibTorch's profiler. Writes
//   <stem>.json   a Chrome trace (chrome://tracing, https://ui.perfetto.dev)
//   <stem>.txt    on a GPU: its time by kernel, how long any kernel ran, and from the first one's start to the last
//                 one's end
// Throws std::runtime_error if a file cannot be written. What is timed later in the process may be slower.
void trace_step(const at::Device& device, const std::filesystem::path& stem, const std::function<void()>& step);

}  // namespace cp_pool
