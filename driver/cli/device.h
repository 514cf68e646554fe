// Which device the ranks of a run are on.
#pragma once

#include <filesystem>
#include <string>

#include "driver/run.h"

namespace cp_pool {

// The number of NVIDIA GPUs that CUDA would show: the device files under `dev` that CUDA_VISIBLE_DEVICES allows.
// visible: its value, null = unset.
int count_gpus(const std::filesystem::path& dev, const char* visible);

struct DeviceChoice {
  std::string device;   // cpu or cuda
  std::string warning;  // there are GPUs, and auto did not take them; else empty
};
// requested: cpu, cuda or auto. auto is cuda where there is a GPU; for the worker that is `shipped` with this program,
// only if it was built for GPUs.
DeviceChoice choose_device(const std::string& requested, bool shipped);
// The same of a machine with so many GPUs, and of a worker that was built for them or not.
DeviceChoice choose_device(const std::string& requested, int gpus, bool built_for_gpus);

// How many GPUs this machine has, if ranks of a case of `most_ranks` will share them; else 0.
int gpus_to_share(const RunConfig& config, int most_ranks);
// The same of a machine with so many GPUs.
int gpus_to_share(const RunConfig& config, int most_ranks, int gpus);

// True if the worker beside this program was built for GPUs: where it looks for that part, there is one.
bool built_for_gpus();
// The command that builds the worker for GPUs.
inline constexpr const char* kBuildForGpus = "tools/build release cuda_part";

}  // namespace cp_pool
