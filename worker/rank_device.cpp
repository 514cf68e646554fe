#include "worker/rank_device.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "cp_core/cuda/device.h"
#include "worker/protocol/host_resources.h"

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

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
constexpr const char* kHide = "CP_POOL_HIDE_GPUS";

bool hiding_is_on() {
  const std::string value = protocol::process_variable(kHide).value_or("on");
  if (value == "off") return false;
  if (value.empty() || value == "on") return true;
  throw protocol::EnvironmentError(fmt::format("{}=\"{}\": neither on nor off", kHide, value));
}

// Returns the visible GPUs by their names in CUDA_VISIBLE_DEVICES; empty if they cannot be found without CUDA.
std::vector<std::string> names_of_gpus() {
  if (const auto visible = protocol::process_variable(kVisible)) return protocol::visible_gpus(*visible);
  std::vector<std::string> names;
  for (int gpu = 0; gpu < protocol::count_gpu_files(); ++gpu) names.push_back(std::to_string(gpu));
  return names;
}

std::string share_obstacle(const protocol::RankEnvironment& environment, const std::string& peers_forbidden) {
  if (!environment.share_gpus) return "ranks may not share a GPU (--share-gpus)";
  if (environment.local_world_size != environment.world_size) {
    return "ranks that share a GPU must all be on one host";
  }
  if (!peers_forbidden.empty()) {
    return fmt::format("ranks that share a GPU exchange data only by peer copies: {}", peers_forbidden);
  }
  return {};
}

// Multiplications of the forward's two products, without a mask, for which one thread is used. At a few multiplications
// per nanosecond a thread needs a tenth of a second for them and for the other operations of such a case.
constexpr double kWorkOfAThread = 1U << 26U;

}  // namespace

int gpu_of_rank(int local_rank, int local_world_size, int gpus) {
  return gpus >= local_world_size ? local_rank : local_rank * gpus / local_world_size;
}

OwnGpu choose_own_gpu(const protocol::RankEnvironment& environment, int gpus, const std::string& peers_forbidden) {
  OwnGpu own{.index = environment.local_rank};
  const int ranks = environment.local_world_size;
  if (gpus == 0 || gpus >= ranks) return own;
  own.share_obstacle = share_obstacle(environment, peers_forbidden);
  if (!own.share_obstacle.empty()) return own;
  own.index = gpu_of_rank(environment.local_rank, ranks, gpus);
  own.shared_gpus = gpus;
  own.ranks_on_it = 0;
  for (int rank = 0; rank < ranks; ++rank) own.ranks_on_it += gpu_of_rank(rank, ranks, gpus) == own.index ? 1 : 0;
  return own;
}

OwnGpu choose_own_gpu(const protocol::RankEnvironment& environment, const std::string& peers_forbidden) {
  if (environment.device != "cuda") return {.index = environment.local_rank};
  const bool hides = hiding_is_on();
  const std::vector<std::string> names = names_of_gpus();
  OwnGpu own = choose_own_gpu(environment, static_cast<int>(names.size()), peers_forbidden);
  if (!hides || static_cast<std::size_t>(own.index) >= names.size() || !own.share_obstacle.empty()) return own;
  constexpr int kReplace = 1;
  setenv(kVisible, names[static_cast<std::size_t>(own.index)].c_str(), kReplace);
  own.index = 0;
  own.is_only = true;
  return own;
}

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

int share_of_cores(int ranks_on_host) {
  static const int cores = protocol::usable_cores();  // read from files, and constant
  return std::max(1, cores / ranks_on_host);
}

int threads_for(const Case& c, int share) {
  const double scores = static_cast<double>(c.batch) * static_cast<double>(c.heads) * static_cast<double>(c.seqlen_q) *
                        static_cast<double>(c.seqlen_kv);
  const double of_a_rank = scores * static_cast<double>(c.head_dim_qk + c.head_dim_v) / c.cp_size;
  return static_cast<int>(std::clamp(of_a_rank / kWorkOfAThread, 1.0, static_cast<double>(share)));
}

void use_threads_for(const Case& c, int ranks_on_host) {
  static const bool user_chose = std::getenv("OMP_NUM_THREADS") != nullptr;
  static const int chosen = at::get_num_threads();
  at::set_num_threads(user_chose ? chosen : threads_for(c, share_of_cores(ranks_on_host)));
}

}  // namespace cp_pool
