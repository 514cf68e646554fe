#include "worker/rank_process.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/Device.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/headeronly/version.h>

#include "cases/case_groups.h"
#include "cases/case_json.h"
#include "cases/case_names.h"
#include "cp_core/comm/peer/peer_environment.h"
#include "cp_core/cuda/device.h"
#include "worker/caught_error.h"
#include "worker/control_plane.h"
#include "worker/control_thread.h"
#include "worker/cpu_threads.h"
#include "worker/environment_baseline.h"
#include "worker/group_slot.h"
#include "worker/lifeline.h"
#include "worker/own_gpu.h"
#include "worker/plan_prefetcher.h"
#include "worker/protocol/lifeline_messages.h"
#include "worker/protocol/own_addresses.h"
#include "worker/rank_compute.h"
#include "worker/rank_device.h"
#include "worker/rank_zero.h"
#include "worker/stack_dump.h"
#include "worker/tcp.h"

namespace cp_pool {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// --- How ranks that a launcher started find rank 0's control plane ---
// Rank 0 binds a free port and tells the driver over its lifeline; the driver tells the other ranks.

bool is_loopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1";
}

// Returns the address at which rank 0 serves the control plane: loopback if all ranks are on its host; else that of the
// interface that the user has chosen, or the one from which this host reaches the driver.
std::string own_master_address(const Lifeline& lifeline, bool on_one_host) {
  if (on_one_host) return "127.0.0.1";
  for (const char* const variable : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
    const std::string interface = protocol::process_variable(variable).value_or("");
    if (interface.empty()) continue;
    if (const auto addresses = protocol::own_addresses(interface); !addresses.empty()) return addresses.front();
  }
  std::string towards_driver = lifeline.local_address();
  if (!towards_driver.empty() && !is_loopback(towards_driver)) return towards_driver;
  const std::vector<std::string> addresses = protocol::own_addresses();
  return addresses.empty() ? "127.0.0.1" : addresses.front();
}

// Called by rank 0, whose control plane listens at environment.master_addr on `port`: tells the driver, and sets
// environment.master_port.
void announce_master(Lifeline& lifeline, protocol::RankEnvironment& environment, int port) {
  environment.master_port = static_cast<std::uint16_t>(port);
  lifeline.tell_rendezvous({protocol::host_name(), {environment.master_addr}, port});
}

// Called by another rank: waits for rank 0's announcement, and sets environment's master address and port to the first
// address that answers. Throws ControlPlaneError, which names both ranks, their hosts and the attempts.
void find_master(Lifeline& lifeline, protocol::RankEnvironment& environment) {
  constexpr seconds kLimit{20};
  constexpr seconds kOneTry{3};
  constexpr milliseconds kBetweenRounds{200};
  const lifeline::Rendezvous where = lifeline.await_rendezvous();
  environment.master_port = static_cast<std::uint16_t>(where.port);
  const bool on_its_host = where.host == protocol::host_name();
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  std::string tried;
  do {
    tried.clear();
    for (const std::string& address : where.addresses) {
      if (is_loopback(address) && !on_its_host) continue;  // on this host another process may listen there
      const lifeline::Endpoint endpoint{address, environment.master_port};
      std::string why;
      if (connect_within(endpoint, kOneTry, why)) {
        environment.master_addr = address;
        return;
      }
      tried += fmt::format("{}{}: {}", tried.empty() ? "" : ", ", lifeline::to_string(endpoint), why);
    }
    std::this_thread::sleep_for(kBetweenRounds);
  } while (std::chrono::steady_clock::now() < deadline);
  throw ControlPlaneError(
      fmt::format("rank {} on host {} cannot reach rank 0 on host {} ({}): GLOO_SOCKET_IFNAME, on GPUs "
                  "NCCL_SOCKET_IFNAME, names the network interface on which the hosts reach each other",
                  environment.rank, protocol::host_name(), where.host, tried));
}

// --- The capabilities and versions of this worker, for its ready event ---

template <typename Enum>
nlohmann::json names() {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [value, name] : kNames<Enum>) out.push_back(name);
  return out;
}

// Returns the backends by device, the comm types, layouts and dtypes that cases may name, and the case fields beyond
// protocol version 1. It also says that every pass has figures of every rank.
// prepares: whether the worker acts on `prepare` requests.
// shared_gpus: how many GPUs the ranks share; 0 if each rank has one of its own.
// diagnoses: whether the worker can say why a case failed.
nlohmann::json capabilities(const at::Device& device, bool prepares, int shared_gpus, bool diagnoses) {
  // A case may name any backend: on a CPU math computes for every backend, and the result says so.
  const nlohmann::json backends =
      device.is_cuda() ? nlohmann::json{{"cuda", names<Backend>()}} : nlohmann::json{{"cpu", {"math"}}};
  nlohmann::json newer_fields = nlohmann::json::array();
  for (const CaseField& field : case_fields()) {
    if (!field.in_version_1) newer_fields.push_back(field.name);
  }
  nlohmann::json requests = {"cancel"};
  if (prepares) requests.push_back("prepare");
  nlohmann::json options = {"bound_factor"};
  if (diagnoses) options.insert(options.end(), {"diagnosis_ms", "known_mistakes"});
  return {{"backends", backends},
          {"comm", names<CommType>()},
          {"layouts", names<Layout>()},
          {"dtypes", names<DType>()},
          {"figures", true},
          {"shared_gpus", shared_gpus},
          {"requests", std::move(requests)},
          {"options", std::move(options)},
          {"case_fields", std::move(newer_fields)}};
}

// Returns the versions of the libraries, by name. For a GPU also those of CUDA, cuDNN and NCCL, and the GPU's name.
nlohmann::json versions(const at::Device& device) {
  nlohmann::json out = {{"cp_pool", CP_POOL_VERSION}, {"torch", TORCH_VERSION}, {"compiler", __VERSION__}};
  if (device.is_cuda()) {
    out["cuda"] = cuda_device().versions();
    out["gpu"] = cuda_device().device_name(device.index());
  }
  return out;
}

constexpr std::chrono::seconds kConnectLimit{30};
constexpr int kMostPrefetchers = 8;

protocol::ReadyEvent ready_event(const protocol::RankEnvironment& environment, const at::Device& device,
                                 const OwnGpu& gpu, CaseRunner& runner) {
  protocol::ReadyEvent ready;
  ready.worker = fmt::format("cp-pool-worker {}", CP_POOL_VERSION);
  ready.world_size = environment.world_size;
  ready.device = environment.device;
  ready.capabilities = capabilities(device, runner.prepares(device), gpu.shared_gpus, runner.diagnoses());
  ready.capabilities.update(runner.capabilities());
  ready.versions = versions(device);
  ready.versions.update(runner.versions());
  return ready;
}

PlanPrefetcher::Pieces prepare_for(const nlohmann::json& case_json, const protocol::RankEnvironment& environment,
                                   const at::Device& device, CaseRunner& runner) {
  const Case c = parse_case(case_json, "case");
  if (world_size(c) != environment.world_size) return {};
  const Division division = division_of(c);
  return runner.prepare(case_of_group(c, group_of_rank(division, environment.rank)),
                        rank_in_group(division, environment.rank), device);
}

// The choice is made once per process, because it hides all other GPUs.
const OwnGpu& own_gpu(const protocol::RankEnvironment& environment) {
  static const OwnGpu gpu = choose_own_gpu(environment, peer_copies_forbidden(/*shares=*/true));
  return gpu;
}

// Ends the process on an exception, so that the rank's death and its last output are seen at once. Unwinding would wait
// for ever for threads that wait for commands of other ranks.
template <typename Function>
auto or_die(int rank, Function&& function) -> decltype(function()) {
  try {
    return std::forward<Function>(function)();
  } catch (...) {
    die_of_current_exception(rank, "it cannot start");
  }
}

}  // namespace

void choose_gpu_early(const protocol::RankEnvironment& environment) {
  (void)own_gpu(environment);
}

int serve_as_rank(const RankProcessConfig& config, CaseRunner& runner, StartupClock& clock) {
  protocol::RankEnvironment environment = config.environment;
  install_stack_dump(environment.rank);
  const OwnGpu& gpu = own_gpu(environment);
  RankDevice device(environment, gpu);
  FaultInjector faults(config.faults, environment.rank);
  faults.reach(Fault::Phase::start);
  std::optional<MessageServer> server;
  Lifeline* const lifeline = Lifeline::current();
  if (environment.rank == 0) {
    if (lifeline != nullptr) environment.master_addr = own_master_address(*lifeline, environment.on_one_host);
    // The listening socket comes from the driver. Processes that this one starts must not inherit it.
    if (environment.master_fd) fcntl(*environment.master_fd, F_SETFD, FD_CLOEXEC);
    server.emplace(environment);
    if (lifeline != nullptr) announce_master(*lifeline, environment, server->port());
  } else if (lifeline != nullptr) {
    or_die(environment.rank, [&] { find_master(*lifeline, environment); });
  }
  device.make_current();
  if (device.device().is_cuda()) {
    faults.set_memory_exhaustion([on = device.device()] {
      constexpr std::int64_t kMoreThanAnyHas = std::int64_t{1} << 46U;
      (void)at::empty({kMoreThanAnyHas}, at::TensorOptions(on).dtype(at::kByte));
    });
  }
  clock.mark("device");
  const bool prepares = runner.prepares(device.device());
  std::future<bool> rank_zero;  // waits for the end when it is destroyed
  if (environment.rank == 0) {
    rank_zero = std::async(std::launch::async, serve_rank_zero, std::ref(*server),
                           ready_event(environment, device.device(), gpu, runner), FaultInjector(config.faults, 0),
                           config.stdin_fd, config.stdout_fd);
  }
  const int rank = environment.rank;
  auto messages = or_die(rank, [&] { return MessageClient<ComputeCommand>(environment); });
  const auto store = or_die(rank, [&] { return connect_store(environment); });
  GroupSlot groups;
  std::promise<void> stopped;  // fulfilled when this thread has stopped, or broken by an exception
  PlanPrefetcher prefetcher(prepares ? std::min(kMostPrefetchers, share_of_cores(environment.local_world_size)) : 0);
  if (config.rehearses) {
    prefetcher.prepare([&runner, on = device.device()] { return runner.rehearsals(on); });
  }
  // Captured by value, because the prefetcher's threads may outlive this call.
  const auto prepare = [&prefetcher, &runner, environment, on = device.device()](const nlohmann::json& case_json) {
    prefetcher.prepare(
        [&runner, environment, on, case_json] { return prepare_for(case_json, environment, on, runner); });
  };
  const ControlThread control =
      or_die(rank, [&] { return ControlThread(environment, groups, runner, prepare, stopped.get_future().share()); });
  clock.mark("control_plane");

  EnvironmentBaseline baseline;
  RankCompute compute({environment, baseline, device.device(), runner, faults, groups, prefetcher, gpu}, messages,
                      store);
  or_die(rank, [&] {
    compute.connect(kConnectLimit, {.on_connected = [&] { clock.mark("data_plane"); }});
    clock.mark("proof");
    clock.note(device.times_ms());
    messages.to_rank0(
        RankStarted{{rank, protocol::host_name(), getpid()}, clock.phases_ms(), groups.get().cp->description()});
  });
  baseline = EnvironmentBaseline();  // taken again, because NCCL once puts settings of its files into the environment
  compute.serve();
  messages.to_rank0(Goodbye{environment.rank});
  stopped.set_value();
  return !rank_zero.valid() || rank_zero.get() ? 0 : 1;
}

}  // namespace cp_pool
