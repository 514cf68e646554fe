// Finds the GPUs of this machine without CUDA.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool::protocol {

// Counts the device files of NVIDIA's driver in the folder `dev`: nvidia0, nvidia1, ... 0 if drivers present their
// devices in other ways.
int count_gpu_files(const std::filesystem::path& dev = "/dev");

// Returns the GPUs that a value of CUDA_VISIBLE_DEVICES names. Like CUDA, ignores the first entry that names no device
// ("-1") and all entries after it.
std::vector<std::string> visible_gpus(std::string_view list);

}  // namespace cp_pool::protocol
