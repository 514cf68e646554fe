// Chooses the device of the ranks of a run, and the GPUs that its pools may use: the value of --gpus, and the GPUs that
// this machine shows.
#pragma once

#include <cstdlib>

#include "driver/core/run.h"

namespace cp_pool {

// Returns the number of NVIDIA GPUs that CUDA would show: the device files under `dev` that CUDA_VISIBLE_DEVICES
// allows. `visible` is the value of that variable, nullptr if it is unset.
int count_gpus(const std::filesystem::path& dev = "/dev", const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"));

struct DeviceChoice {
  std::string device;        // cpu or cuda
  std::string warning = {};  // why auto did not take the GPUs of this machine; else empty
};
// True if the worker beside this program was built for GPUs, which means that its CUDA library is there.
bool built_for_gpus();
// `requested` is cpu, cuda or auto. auto means cuda if there is a GPU. For the worker that is `shipped` with this
// program, auto means cuda only if the worker was also built for GPUs. `gpus` is the number of GPUs of the machine,
// here and below.
DeviceChoice choose_device(const std::string& requested, bool shipped, int gpus = count_gpus(),
                           bool built = built_for_gpus());

// Returns how many ranks try out a worker on this device (cpu or cuda): two, which is enough for everything that takes
// several ranks, or one on a machine with a single GPU.
int ranks_to_try(const std::string& device, int gpus = count_gpus());
// Returns the number of GPUs of the run if ranks of a case of `most_ranks` will share them, else 0.
int gpus_to_share(const RunConfig& config, int most_ranks, int gpus = count_gpus());

// The command that builds the worker for GPUs.
inline constexpr const char* kBuildForGpus = "tools/build release cuda_part";

// Reads a list such as "0-3,6". Returns its numbers in its order; nullopt if it is no such list or names a number
// twice.
std::optional<std::vector<int>> parse_gpu_list(std::string_view text);

// Returns the names of the GPUs that CUDA would show: the entries of CUDA_VISIBLE_DEVICES, or the numbers of the device
// files under `dev`. `visible` is the value of that variable, nullptr if it is unset. Empty if the GPUs cannot be seen
// without CUDA.
std::vector<std::string> visible_gpu_names(const std::filesystem::path& dev = "/dev",
                                           const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"));

// Returns the names of the GPUs at the places that `list` holds among those in `shown`; all of these if it is empty. If
// `shown` is empty, returns the numbers of the list. Throws CommandError (usage) for a place that no GPU has.
std::vector<std::string> chosen_gpus(const std::vector<int>& list,
                                     const std::vector<std::string>& shown = visible_gpu_names());

}  // namespace cp_pool
