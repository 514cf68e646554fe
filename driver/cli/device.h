// Which device the ranks of a run are on.
#pragma once

#include <filesystem>
#include <string>

namespace cp_pool {

// NVIDIA GPUs that CUDA would show: the device files under `dev`, as far as CUDA_VISIBLE_DEVICES (`visible`, null =
// unset) allows.
int count_gpus(const std::filesystem::path& dev, const char* visible);

// requested: cpu, cuda or auto. auto is cuda where there is a GPU and the worker beside this program was built for it.
std::string resolve_device(const std::string& requested);

}  // namespace cp_pool
