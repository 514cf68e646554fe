#include "worker/rank_process.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "cases/case_groups.h"
#include "cases/case_json.h"
#include "cp_core/comm/peer/peer_environment.h"
#include "worker/capabilities.h"
#include "worker/caught_error.h"
#include "worker/control_plane.h"
#include "worker/cpu_threads.h"
#include "worker/environment_baseline.h"
#include "worker/group_slot.h"
#include "worker/lifeline.h"
#include "worker/own_gpu.h"
#include "worker/preparer.h"
#include "worker/protocol/own_addresses.h"
#include "worker/rank_compute.h"
#include "worker/rank_device.h"
#include "worker/rank_zero.h"
#include "worker/rendezvous.h"
#include "worker/stack_dump.h"
#include "worker/watcher.h"

namespace cp_pool {

namespace {

constexpr std::chrono::seconds kConnectLimit{30};
constexpr int kMostPreparers = 8;

protocol::ReadyEvent what_we_are(const protocol::RankEnvironment& environment, const at::Device& device,
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

Preparer::Pieces prepare_for(const nlohmann::json& case_json, const protocol::RankEnvironment& environment,
                             const at::Device& device, CaseRunner& runner) {
  const Case c = parse_case(case_json, "case");
  if (world_size(c) != environment.world_size) return {};
  return runner.prepare(c, environment.rank / c.group, device);
}

// The choice is made once per process, because it hides all other GPUs.
const OwnGpu& own_gpu(const protocol::RankEnvironment& environment) {
  static const OwnGpu gpu = choose_own_gpu(environment, peer_copies_forbidden(/*shares=*/true));
  return gpu;
}

// Fulfils a promise when it is destroyed, at the latest.
class StoppedSignal {
 public:
  StoppedSignal() : future_(promise_.get_future().share()) {}
  StoppedSignal(const StoppedSignal&) = delete;
  StoppedSignal& operator=(const StoppedSignal&) = delete;
  ~StoppedSignal() { signal(); }
  void signal() {
    if (!signalled_) promise_.set_value();
    signalled_ = true;
  }
  [[nodiscard]] const std::shared_future<void>& future() const { return future_; }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_;
  bool signalled_ = false;
};

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
  std::optional<MailServer> server;
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
  std::unique_ptr<RankZero> rank_zero;
  if (environment.rank == 0) {
    rank_zero = std::make_unique<RankZero>(*server, what_we_are(environment, device.device(), gpu, runner),
                                           FaultInjector(config.faults, 0), config.stdin_fd, config.stdout_fd);
  }
  const int rank = environment.rank;
  Mail mail = or_die(rank, [&] { return Mail(environment); });
  const auto store = or_die(rank, [&] { return connect_store(environment); });
  GroupSlot groups;
  StoppedSignal stopped;
  Preparer preparer(prepares ? std::min(kMostPreparers, share_of_cores(environment.local_world_size)) : 0);
  if (config.rehearses) {
    preparer.prepare([&runner, on = device.device()] { return runner.rehearsals(on); });
  }
  // Captured by value, because the preparer's threads may outlive this call.
  const auto prepare = [&preparer, &runner, environment, on = device.device()](const nlohmann::json& case_json) {
    preparer.prepare([&runner, environment, on, case_json] { return prepare_for(case_json, environment, on, runner); });
  };
  const Watcher watcher = or_die(rank, [&] {
    return Watcher(environment, groups, stopped.future(),
                   {.prepare = prepare,
                    .free_waits = [&runner](int generation) { runner.free_waits(generation); },
                    .history = [&runner] { return runner.history(); }});
  });
  clock.mark("control_plane");

  EnvironmentBaseline baseline;
  RankCompute compute({environment, baseline, device.device(), runner, faults, groups, preparer, gpu}, mail, store);
  or_die(rank, [&] {
    compute.connect(kConnectLimit, {.on_connected = [&] { clock.mark("data_plane"); }});
    clock.mark("proof");
    clock.note(device.times_ms());
    mail.to_rank0(Hello{{rank, protocol::host_name(), getpid()}, clock.phases_ms(), groups.get().cp->description()});
  });
  baseline = EnvironmentBaseline();  // taken again, because NCCL once puts settings of its files into the environment
  compute.serve();
  mail.to_rank0(Goodbye{environment.rank});
  stopped.signal();
  return !rank_zero || rank_zero->wait() ? 0 : 1;
}

}  // namespace cp_pool
