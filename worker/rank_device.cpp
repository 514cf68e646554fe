#include "worker/rank_device.h"

#include <fmt/format.h>

#include "cp_core/cuda/cuda_part.h"

namespace cp_pool {

namespace {

at::Device device_of(const protocol::RankEnvironment& environment) {
  if (environment.device == "cpu") return at::kCPU;
  if (environment.device == "cuda") return {at::kCUDA, static_cast<c10::DeviceIndex>(environment.local_rank)};
  throw protocol::EnvironmentError(
      fmt::format("{}=\"{}\": neither cpu nor cuda", protocol::kEnvDevice, environment.device));
}

void use(CudaPart& part, int index, int ranks) {
  const int visible = part.visible_devices();
  if (visible > 0 && visible < ranks) {
    throw TooFewDevices(
        fmt::format("needs {} GPUs, one a rank, and {} {} visible", ranks, visible, visible == 1 ? "is" : "are"));
  }
  part.use_device(index);
}

}  // namespace

RankDevice::RankDevice(const protocol::RankEnvironment& environment) : device_(device_of(environment)) {
  if (!device_.is_cuda()) return;
  loaded_ = std::async(std::launch::async, [index = device_.index(), ranks = environment.local_world_size] {
              use(load_cuda_part(), index, ranks);
            }).share();
}

at::Device RankDevice::make_current() {
  if (loaded_.valid()) {
    loaded_.get();
    cuda_part().use_device(device_.index());
  }
  return device_;
}

}  // namespace cp_pool
