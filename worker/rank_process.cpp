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
#include "cases/case_phases.h"
#include "cp_core/comm/peer/peer_environment.h"
#include "cp_core/cuda/device.h"
#include "worker/control_plane.h"
#include "worker/control_thread.h"
#include "worker/environment_baseline.h"
#include "worker/lifeline.h"
#include "worker/pending_operation.h"
#include "worker/plan_prefetcher.h"
#include "worker/protocol/host_resources.h"
#include "worker/protocol/lifeline_messages.h"
#include "worker/rank_compute.h"
#include "worker/rank_outcome.h"
#include "worker/rank_zero.h"
#include "worker/stack_dump.h"
#include "worker/tcp.h"
#include "worker/worker_main.h"

namespace cp_pool {
namespace {

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

// Called by another rank: waits for rank 0's announcement, and sets environment's master address and port to the first
// address that answers. Throws ControlPlaneError, which names both ranks, their hosts and the attempts.
void find_master(Lifeline& lifeline, protocol::RankEnvironment& environment) {
  constexpr std::chrono::seconds kLimit{20};
  const lifeline::Rendezvous where = lifeline.await_rendezvous();
  environment.master_port = static_cast<std::uint16_t>(where.port);
  std::vector<lifeline::Endpoint> endpoints;
  for (const std::string& address : where.addresses) {
    if (is_loopback(address) && where.host != protocol::host_name()) continue;  // here another process may listen there
    endpoints.push_back({address, environment.master_port});
  }
  std::string tried;
  const Connected found =
      connect_to_any(endpoints, kLimit, [](int /*fd*/, const std::string& /*why*/) { return true; }, tried);
  environment.master_addr = found.endpoint.host;
  if (found.fd) return;
  throw ControlPlaneError(
      fmt::format("rank {} on host {} cannot reach rank 0 on host {} ({}): GLOO_SOCKET_IFNAME, on GPUs "
                  "NCCL_SOCKET_IFNAME, names the network interface on which the hosts reach each other",
                  environment.rank, protocol::host_name(), where.host, tried));
}

constexpr std::chrono::seconds kConnectLimit{30};
constexpr int kMostPrefetchers = 8;

// Returns the event without ranks. capabilities: the backends by device, the comm types, layouts and dtypes that cases
// may name, the case fields beyond protocol version 1, and that every pass has figures of every rank. versions: those
// of the libraries, by name; for a GPU also those of CUDA, cuDNN and NCCL, and the GPU's name.
protocol::ReadyEvent ready_event(const protocol::RankEnvironment& environment, const at::Device& device,
                                 const OwnGpu& gpu, CaseRunner& runner) {
  protocol::ReadyEvent ready;
  ready.worker = fmt::format("cp-pool-worker {}", CP_POOL_VERSION);
  ready.world_size = environment.world_size;
  ready.device = environment.device;
  nlohmann::json newer_fields = nlohmann::json::array();
  for (const CaseField& field : case_fields()) {
    if (!field.in_version_1) newer_fields.push_back(field.name);
  }
  nlohmann::json requests = {"cancel"};
  if (runner.prepares(device)) requests.push_back("prepare");
  nlohmann::json options = {"bound_factor"};
  if (runner.diagnoses()) options.insert(options.end(), {"diagnosis_ms", "known_mistakes"});
  ready.capabilities = {{"comm", all_names<CommType>()},  {"layouts", all_names<Layout>()},
                        {"dtypes", all_names<DType>()},   {"figures", true},
                        {"shared_gpus", gpu.shared_gpus}, {"requests", std::move(requests)},
                        {"options", std::move(options)},  {"case_fields", std::move(newer_fields)}};
  ready.versions = {{"cp_pool", CP_POOL_VERSION}, {"torch", TORCH_VERSION}, {"compiler", __VERSION__}};
  if (device.is_cuda()) {
    ready.capabilities["backends"] = {{"cuda", all_names<Backend>()}};
    ready.versions["cuda"] = cuda_device().versions();
    ready.versions["gpu"] = cuda_device().device_name(device.index());
  } else {
    ready.capabilities["backends"] = {{"cpu", {"math"}}};  // a case may name any, and the result says what computed it
  }
  ready.capabilities.update(runner.capabilities());
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

const OwnGpu& own_gpu(const protocol::RankEnvironment& environment) {
  static const OwnGpu gpu = choose_own_gpu(environment, peer_copies_forbidden(/*shares=*/true));
  return gpu;
}

int serve_as_rank(protocol::RankEnvironment environment, const Options& options, CaseRunner& runner,
                  StartupClock& clock, int stdin_fd, int stdout_fd) {
  install_stack_dump(environment.rank);
  const OwnGpu& gpu = own_gpu(environment);
  RankDevice device(environment, gpu);
  FaultInjector faults(options.faults, environment.rank);
  faults.reach(Fault::Phase::start);
  std::optional<MessageServer> server;
  Lifeline* const lifeline = Lifeline::current();
  if (environment.rank == 0) {
    if (lifeline != nullptr) environment.master_addr = own_master_address(*lifeline, environment.on_one_host);
    // The listening socket comes from the driver. Processes that this one starts must not inherit it.
    if (environment.master_fd) fcntl(*environment.master_fd, F_SETFD, FD_CLOEXEC);
    server.emplace(environment);
    if (lifeline != nullptr) {
      environment.master_port = static_cast<std::uint16_t>(server->port());
      lifeline->tell_rendezvous({protocol::host_name(), {environment.master_addr}, environment.master_port});
    }
  } else if (lifeline != nullptr) {
    or_die(environment.rank, [&] { find_master(*lifeline, environment); });
  }
  const at::Device on = device.make_current();
  if (on.is_cuda()) {
    faults.set_memory_exhaustion([on] {
      constexpr std::int64_t kMoreThanAnyHas = std::int64_t{1} << 46U;
      (void)at::empty({kMoreThanAnyHas}, at::TensorOptions(on).dtype(at::kByte));
    });
  }
  clock.mark("device");
  const bool prepares = runner.prepares(on);
  std::future<bool> rank_zero;  // waits for the end when it is destroyed
  if (environment.rank == 0) {
    rank_zero =
        std::async(std::launch::async, serve_rank_zero, std::ref(*server), ready_event(environment, on, gpu, runner),
                   FaultInjector(options.faults, 0), stdin_fd, stdout_fd);
  }
  const int rank = environment.rank;
  auto messages = or_die(rank, [&] { return MessageClient<ComputeCommand>(environment, server ? &*server : nullptr); });
  const auto store = or_die(rank, [&] { return connect_store(environment); });
  GroupSlot groups;
  std::promise<void> stopped;  // fulfilled when this thread has stopped, or broken by an exception
  PlanPrefetcher prefetcher(prepares ? std::min(kMostPrefetchers, share_of_cores(environment.local_world_size)) : 0);
  if (options.rehearses) {
    prefetcher.prepare([&runner, on] { return runner.rehearsals(on); });
  }
  // Captured by value, because the prefetcher's threads may outlive this call.
  const auto prepare = [&prefetcher, &runner, environment, on](const nlohmann::json& case_json) {
    prefetcher.prepare(
        [&runner, environment, on, case_json] { return prepare_for(case_json, environment, on, runner); });
  };
  const ControlThread control =
      or_die(rank, [&] { return ControlThread(environment, groups, runner, prepare, stopped.get_future().share()); });
  clock.mark("control_plane");

  EnvironmentBaseline baseline;
  RankCompute compute({environment, baseline, on, runner, faults, groups, prefetcher, gpu}, messages, store);
  or_die(rank, [&] {
    compute.connect(0, kConnectLimit, {.on_connected = [&] { clock.mark("data_plane"); }});
    clock.mark("proof");
    clock.note(device.times_ms());
    set_current_phase(case_phase::kIdle);  // before anybody can know that it has started
    messages.to_rank0(
        RankStarted{{rank, protocol::host_name(), getpid()}, clock.phases_ms(), groups.get().cp->description()});
  });
  baseline = EnvironmentBaseline();  // taken again, because NCCL once puts settings of its files into the environment
  compute.serve();
  messages.to_rank0(Goodbye{});
  stopped.set_value();
  return !rank_zero.valid() || rank_zero.get() ? 0 : 1;
}

}  // namespace cp_pool
