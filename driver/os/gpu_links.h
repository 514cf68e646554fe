// Asks NVIDIA's management library (libnvidia-ml.so.1) how far GPUs are from each other. The library is part of the GPU
// driver and is loaded at run time.
#pragma once

#include <string>
#include <vector>

namespace cp_pool {

struct GpuLinks {
  // Distance of two GPUs, indexed by their positions in `names`. 0: NVLink joins them; otherwise it grows with how much
  // of the machine lies between them, from kNearestByPcie (one PCIe switch) up. Empty: unknown.
  std::vector<std::vector<int>> distances;
  std::string why_unknown;  // why the distances are unknown, as a sentence
};

inline constexpr int kNearestByPcie = 1;

// names: of the GPUs, as in CUDA_VISIBLE_DEVICES. library: file name of the library to load.
GpuLinks gpu_links(const std::vector<std::string>& names, const char* library = "libnvidia-ml.so.1");

// Returns which GPUs NVLink joins, by their positions: "NVLink joins 0-3 and 4-7".
std::string nvlink_text(const GpuLinks& links);

}  // namespace cp_pool
