// The device that a rank computes on: its share of the cores, or the GPU that it chooses. The other GPUs are hidden
// from the rank's process: at start CUDA needs at least a tenth of a second for each visible GPU, and ranks reach each
// other's memory without seeing each other's GPUs (comm/peer/peer_link.h, NCCL). If a machine has fewer GPUs than
// ranks, neighbouring ranks share one.
#pragma once

#include <future>
#include <map>
#include <stdexcept>
#include <string>

#include <c10/core/Device.h>

#include "cases/case.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

struct OwnGpu {
  int index = 0;                    // index among the visible GPUs
  bool is_only = false;             // the other GPUs are hidden
  int ranks_on_it = 1;              // number of ranks that use this GPU, this rank included
  int shared_gpus = 0;              // how many GPUs the ranks of this machine share; 0: each rank has one of its own
  std::string share_obstacle = {};  // as a clause: why ranks cannot share GPUs, if there are fewer GPUs than ranks
};

// Returns the GPU, of `gpus` GPUs, for rank local_rank of local_world_size. Each rank gets one of its own if there are
// enough; else ranks are spread as evenly as possible, and neighbours share. gpus is at least 1.
int gpu_of_rank(int local_rank, int local_world_size, int gpus);

// Chooses the GPU, and hides the others by setting CUDA_VISIBLE_DEVICES unless CP_POOL_HIDE_GPUS is off. Must be called
// before CUDA is loaded and before the process has other threads. Ranks share GPUs if CP_POOL_SHARE_GPUS allows it
// (RankEnvironment::share_gpus), all ranks are on this host, and peer copies, which connect such ranks, are allowed
// (peers_forbidden is empty, else it says why they are not). Throws EnvironmentError if CP_POOL_HIDE_GPUS is neither on
// nor off.
OwnGpu choose_own_gpu(const protocol::RankEnvironment& environment, const std::string& peers_forbidden);

// Chooses in the same way for a machine with `gpus` visible GPUs, and hides none.
OwnGpu choose_own_gpu(const protocol::RankEnvironment& environment, int gpus, const std::string& peers_forbidden);

// Thrown if this machine has fewer visible GPUs than its ranks need.
class TooFewDevices : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class RankDevice {
 public:
  // If the environment asks for a GPU, loads the CUDA part and creates the device's context in the background.
  // Throws EnvironmentError for a device that is neither cpu nor cuda.
  RankDevice(const protocol::RankEnvironment& environment, const OwnGpu& gpu);

  // Waits until the device can be used, and makes it current on this thread. Throws CudaUnavailable. Throws
  // TooFewDevices also if ranks would have to share a GPU that only one process may use.
  at::Device make_current();

  // Returns the milliseconds of load_cuda and use_device, which are done; nothing for ranks on CPUs.
  [[nodiscard]] std::map<std::string, double> times_ms() const {
    return loaded_.valid() ? loaded_.get() : std::map<std::string, double>{};
  }

 private:
  at::Device device_;
  std::shared_future<std::map<std::string, double>> loaded_;  // times_ms(); not valid on a CPU
};

// Returns a rank's share of the cores: those that this process may use, divided by the ranks on this host, at least 1.
int share_of_cores(int ranks_on_host);

// Returns how many threads a rank of `c` can use, at most `share`. Small problems get 1, because their operations end
// sooner than other threads wake up.
int threads_for(const Case& c, int share);

// Sets the number of threads of LibTorch's operations on the calling thread to threads_for(), or to OMP_NUM_THREADS if
// that variable is set.
void use_threads_for(const Case& c, int ranks_on_host);

}  // namespace cp_pool
