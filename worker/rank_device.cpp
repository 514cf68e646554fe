#include "worker/rank_device.h"

#include <chrono>

#include <fmt/format.h>

#include "cp_core/cuda/device.h"

namespace cp_pool {

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

at::Device device_of(const protocol::RankEnvironment& environment, const OwnGpu& gpu) {
  if (environment.device == "cpu") return at::kCPU;
  if (environment.device == "cuda") return {at::kCUDA, static_cast<c10::DeviceIndex>(gpu.index)};
  throw protocol::EnvironmentError(
      fmt::format("{}=\"{}\": neither cpu nor cuda", protocol::kEnvDevice, environment.device));
}

void use(const OwnGpu& gpu, int ranks) {
  const int visible = cuda_device().visible_devices();
  const auto too_few = [&](int gpus, const std::string& share_obstacle) {
    return TooFewDevices(fmt::format("needs {} GPUs (one per rank), but only {} {} visible; {}", ranks, gpus,
                                     gpus == 1 ? "is" : "are", share_obstacle));
  };
  if (gpu.shared_gpus > 0) {
    if (visible > gpu.index && cuda_device().takes_one_process(gpu.index)) {
      throw too_few(gpu.shared_gpus,
                    "ranks cannot share a GPU in exclusive-process mode (nvidia-smi -c DEFAULT ends it)");
    }
  } else if (!gpu.is_only && visible > 0 && visible < ranks) {
    throw too_few(visible, gpu.share_obstacle.empty()
                               ? "ranks can share GPUs only if /dev/nvidia* or CUDA_VISIBLE_DEVICES "
                                 "shows how many GPUs there are"
                               : gpu.share_obstacle);
  }
  cuda_device().use_device(gpu.index);
}

}  // namespace

RankDevice::RankDevice(const protocol::RankEnvironment& environment, const OwnGpu& gpu)
    : device_(device_of(environment, gpu)) {
  if (!device_.is_cuda()) return;
  loaded_ = std::async(std::launch::async, [gpu, ranks = environment.local_world_size] {
              std::map<std::string, double> times;
              const auto start = Clock::now();
              load_cuda_part();
              times["load_cuda"] = ms_since(start);
              const auto loaded = Clock::now();
              use(gpu, ranks);
              times["use_device"] = ms_since(loaded);
              return times;
            }).share();
}

at::Device RankDevice::make_current() {
  if (loaded_.valid()) {
    loaded_.get();
    cuda_device().use_device(device_.index());
  }
  return device_;
}

}  // namespace cp_pool
