// The device that a rank computes on: the CPU, or its own GPU.
#pragma once

#include <future>
#include <map>
#include <stdexcept>
#include <string>

#include <c10/core/Device.h>

#include "worker/own_gpu.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

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

  [[nodiscard]] const at::Device& device() const { return device_; }

  // Returns the milliseconds of load_cuda and use_device, which are done; nothing for ranks on CPUs.
  [[nodiscard]] std::map<std::string, double> times_ms() const {
    return loaded_.valid() ? loaded_.get() : std::map<std::string, double>{};
  }

 private:
  at::Device device_;
  std::shared_future<std::map<std::string, double>> loaded_;  // times_ms(); not valid on a CPU
};

}  // namespace cp_pool
