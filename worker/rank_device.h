// The device that a rank computes on: the CPU, or the GPU that its local rank names.
#pragma once

#include <future>
#include <stdexcept>
#include <string>

#include <c10/core/Device.h>

#include "worker/protocol/environment.h"

namespace cp_pool {

// This machine's visible GPUs do not suffice for the ranks on it.
class TooFewDevices : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class RankDevice {
 public:
  // Starts loading the CUDA part and creating the device's context, where the environment asks for one, so that this
  // overlaps the control plane's start. Throws EnvironmentError for a device that is neither cpu nor cuda.
  explicit RankDevice(const protocol::RankEnvironment& environment);

  // Waits until the device can be used, and makes it current on this thread. Throws CudaUnavailable, TooFewDevices.
  at::Device make_current();

  [[nodiscard]] const at::Device& device() const { return device_; }

 private:
  at::Device device_;
  std::shared_future<void> loaded_;
};

}  // namespace cp_pool
