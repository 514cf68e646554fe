// The GPUs of this machine, as far as that can be seen without CUDA.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool::protocol {

// Device files of NVIDIA's driver in the folder `dev`: nvidia0, nvidia1, ..; 0 where drivers show their devices in
// other ways.
int count_gpu_files(const std::filesystem::path& dev = "/dev");

// The GPUs that a value of CUDA_VISIBLE_DEVICES names. CUDA takes no notice of the first entry that names nothing
// ("-1"), and of those behind it.
std::vector<std::string> visible_gpus(std::string_view list);

}  // namespace cp_pool::protocol
