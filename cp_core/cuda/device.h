// The device side of CudaPart (cuda_part.h, where the contracts are).
#pragma once

#include <cstdint>
#include <string>

#include "cp_core/cuda/cuda_part.h"

namespace cp_pool::cuda {

void use_device(int index);
int visible_devices();
bool takes_one_process(int index);
std::string device_name(int index);
std::string versions();
CudaMemory memory();
void synchronize();
void reset(std::uint64_t seed);
void release_cached_memory();

}  // namespace cp_pool::cuda
