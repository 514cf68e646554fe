// How far GPUs are from each other: NVIDIA's management library knows (libnvidia-ml.so.1). It is a part of the GPU
// driver, and is loaded when it is asked.
#pragma once

#include <string>
#include <vector>

namespace cp_pool {

struct GpuLinks {
  // By the places of two GPUs. 0: NVLink joins them; else how much of the machine lies between them, from
  // kNearestByPcie (one PCIe switch) up. Empty: unknown.
  std::vector<std::vector<int>> distances;
  std::string why_unknown;  // as a sentence
};

inline constexpr int kNearestByPcie = 1;

// names: of the GPUs, as CUDA_VISIBLE_DEVICES has them. library: that is loaded.
GpuLinks gpu_links(const std::vector<std::string>& names, const char* library = "libnvidia-ml.so.1");

// "NVLink joins 0-3 and 4-7": which GPUs NVLink joins, by their places.
std::string nvlink_text(const GpuLinks& links);

}  // namespace cp_pool
