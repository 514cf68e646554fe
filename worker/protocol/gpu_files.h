// The GPUs of this machine, as far as that can be seen without CUDA.
#pragma once

#include <filesystem>

namespace cp_pool::protocol {

// Device files of NVIDIA's driver in the folder `dev`: nvidia0, nvidia1, ..; 0 where drivers show their devices in
// other ways.
int count_gpu_files(const std::filesystem::path& dev = "/dev");

}  // namespace cp_pool::protocol
