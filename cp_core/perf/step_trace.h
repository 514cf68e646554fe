// Traces a step kernel by kernel and call by call, to show where its time goes.
#pragma once

#include <filesystem>
#include <functional>

#include <c10/core/Device.h>

namespace cp_pool {

// Runs `step` under LibTorch's profiler. The device's work must be done when `step` returns. Writes
//   <stem>.json   a Chrome trace (chrome://tracing, https://ui.perfetto.dev)
//   <stem>.txt    on a GPU: the time of each kernel, the time during which any kernel ran, and the time from the
//                 start of the first kernel to the end of the last
// Throws FileError if a file cannot be written. Steps that are timed later in the process may be slower.
void trace_step(const at::Device& device, const std::filesystem::path& stem, const std::function<void()>& step);

}  // namespace cp_pool
