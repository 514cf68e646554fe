#include "driver/pool/pool.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/error_reason.h"
#include "driver/pool/case_request.h"
#include "driver/pool/fork_server.h"
#include "driver/pool/frame_naming.h"
#include "driver/pool/launched_group.h"
#include "driver/pool/local_group.h"
#include "driver/pool/log_folder.h"
#include "driver/pool/rank_variables.h"
#include "driver/process/loopback.h"
#include "driver/process/oom_kills.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

using std::chrono::milliseconds;

// If file descriptors ran out, the text names the limit, which the user can raise.
std::string why_not_started(int error, const char* what) {
  const std::error_code code(error, std::generic_category());
  return code == std::errc::too_many_files_open ? error_reason(code) : what;
}

constexpr milliseconds kStartDrain{200};  // after an exit, for reading the last output
constexpr milliseconds kDeathOfPipes{200};
constexpr std::size_t kMostLastWords = 400;
// Exit codes after which another start cannot help.
constexpr std::array kPermanentExits{protocol::kExitNoCommonVersion, protocol::kExitNoDevice,
                                     protocol::kExitTooFewDevices, protocol::kExitCommandNotFound};

// This is a function because g++ 12 warns of uninitialised members of a braced object in a coroutine.
StartFailure start_failure(RetireReason reason, std::string detail) {
  StartFailure out;
  out.retirement.reason = reason;
  out.retirement.detail = std::move(detail);
  return out;
}

}  // namespace

Pool::Pool(RunContext& home, RankStart start, PoolId id, int world_size, PoolPlace place, Wakeup& wakeup)
    : host_(home.host),
      home_(home),
      run_(&home),
      start_(start),
      id_(std::move(id)),
      world_size_(world_size),
      place_(std::move(place)),
      wakeup_(wakeup),
      tag_(random_tag()),
      processes_(tag_),
      spawned_(Clock::now()),
      oom_kills_before_(oom_kills()) {
  host_.add(*this);
}

void Pool::spawn(bool forks) {
  const RunConfig& start = *start_.config;
  WorkerGroup::Config common;
  common.command = start.worker_command;
  common.device = start.device;
  common.share_gpus = start.share_gpus;
  common.world_size = world_size_;
  common.tag = tag_;
  if (run_->config.run_dir) {
    common.logs.dir = log_folder(*run_->config.run_dir, id_);
    common.logs.on_error = [this](std::string message) { run_->lose_output("--run-dir", std::move(message)); };
  }
  common.variables = {{kEnvStartTimeout, std::to_string(start_timeout_of(start, world_size_).count())}};
  if (!place_.gpus.empty()) {
    common.variables.emplace_back("CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(place_.gpus, ",")));
  }
  common.surroundings = start.surroundings;
  const auto on_change = [this] { wakeup_.notify(); };
  if (start.launcher.kind == LauncherKind::local) {
    LocalGroup::Config config{std::move(common)};
    if (forks) config.fork_server = start_.fork_server;
    config.on_forked = [this](pid_t pid) {
      host_.ranks.insert(pid);
      processes_.add(pid);
    };
    group_ = std::make_unique<LocalGroup>(host_.io, std::move(config), on_change);
  } else {
    LaunchedGroup::Config config{std::move(common)};
    config.launcher = start.launcher;
    config.hosts = place_.hosts;
    config.crowded = !place_.hosts.empty() && static_cast<int>(place_.slots.size()) < world_size_;
    group_ = std::make_unique<LaunchedGroup>(host_.io, std::move(config), on_change);
  }
  group_->spawn();
}

std::optional<StartFailure> Pool::try_spawn(bool forks) {
  std::optional<StartFailure> failure;
  try {
    spawn(forks);
  } catch (const SpawnError& error) {
    failure = start_failure(RetireReason::start_failed, why_not_started(error.error, error.what()));
    failure->permanent = error.permanent();
  } catch (const std::system_error& error) {
    failure = start_failure(RetireReason::start_failed, why_not_started(error.code().value(), error.what()));
  }
  return failure;
}

// Waits until the fork server is ready or given up. Returns whether it can fork ranks.
asio::awaitable<bool> Pool::await_fork_server() {
  ForkServer* const server = start_.fork_server;
  if (server == nullptr) co_return false;
  server->start();
  const milliseconds patience = start_timeout_of(*start_.config, world_size_);
  const auto limit = Clock::now() + patience;
  while (server->starting() && !start_is_given_up() && Clock::now() < limit) {
    co_await wakeup_.wait_until(limit);
  }
  if (server->starting() && !start_is_given_up()) {
    server->give_up(fmt::format("the fork server was not ready within {} ms (--start-timeout)", patience.count()));
  }
  co_return server->ready();
}

// Called after try_spawn with the fork server. Waits until the server has forked every rank. If the server is lost
// meanwhile, all ranks are started anew, one by one.
asio::awaitable<std::optional<StartFailure>> Pool::await_forks() {
  while (group_->forking()) {
    if (start_is_given_up()) group_->stop_forking();
    co_await wakeup_.wait();  // ends at the latest when the server is given up
  }
  if (!group_->fork_failed()) co_return std::nullopt;
  co_await kill();
  forget_group();
  if (start_is_given_up()) co_return given_up_start();
  co_return try_spawn(false);
}

std::vector<int> Pool::pids() const {
  return group_ ? group_->pids() : std::vector<int>{};
}

void Pool::give_up_start() {
  unneeded_ = true;
  wakeup_.notify();
}

// The start of a pool whose fork server has found out that no rank can start.
StartFailure Pool::refused_start() const {
  StartFailure out = start_failure(RetireReason::start_failed, start_.fork_server->no_rank_starts());
  out.permanent = true;
  const std::string words = protocol::clean_text(start_.fork_server->last_words());
  if (!words.empty()) out.stderr_tails = {{.rank = -1, .text = words, .of = "the fork server"}};
  return out;
}

StartFailure Pool::given_up_start() const {
  if (run_->stop.abandon_running())
    return start_failure(RetireReason::interrupted, "the run was stopped before it was ready");
  if (host_.pausing()) return start_failure(RetireReason::paused, "the run was paused before it was ready");
  return start_failure(RetireReason::finished, "no case was left for it before it was ready");
}

asio::awaitable<std::optional<StartFailure>> Pool::start() {
  const bool forks = co_await await_fork_server();
  const bool refused = start_.fork_server != nullptr && !start_.fork_server->no_rank_starts().empty();
  if (refused || start_is_given_up()) {
    run_->emit(
        PoolSpawned{.pool = id_, .world_size = world_size_, .pids = {}, .slots = place_.slots, .gpus = place_.gpus});
    co_return refused ? refused_start() : given_up_start();
  }
  std::optional<StartFailure> failure = try_spawn(forks);
  if (forks && !failure) failure = co_await await_forks();
  if (group_) {  // none if the start was given up while the ranks were being forked
    const std::vector<int> children = group_->children();
    host_.ranks.insert(children.begin(), children.end());
  }
  run_->emit(
      PoolSpawned{.pool = id_, .world_size = world_size_, .pids = pids(), .slots = place_.slots, .gpus = place_.gpus});
  if (failure) co_return failure;

  const milliseconds patience = start_timeout_of(*start_.config, world_size_);
  const auto deadline = Clock::now() + patience;
  std::string said;  // the worker's reason why it cannot start
  for (;;) {
    while (const auto incoming = group_->take()) {
      if (const auto* bad = std::get_if<ProtocolBreak>(&*incoming)) co_return co_await failed_start(bad->detail);
      const auto& event = std::get<protocol::Event>(*incoming);
      if (const auto* refusal = std::get_if<protocol::ProtocolErrorEvent>(&event)) said = refusal->message;
      if (const auto* result = std::get_if<protocol::ResultEvent>(&event)) {
        co_return co_await failed_start(fmt::format("a result for seq {} before the worker was ready", result->seq));
      }
      const auto* ready = std::get_if<protocol::ReadyEvent>(&event);
      if (ready == nullptr) continue;
      if (const auto problem = refuse(*ready)) {
        StartFailure refused = co_await failed_start(*problem);
        // The worker's protocol version and capabilities will be the same next time. A wrong number of ranks may not
        // be.
        refused.permanent =
            refused.permanent || ready->protocol != protocol::kVersion || ready->world_size == world_size_;
        co_return refused;
      }
      capabilities_ = ready->capabilities;
      shared_gpus_ = protocol::shared_gpus(*ready);
      idle_ = true;
      run_->emit(PoolReady{id_, std::chrono::duration<double, std::milli>(Clock::now() - spawned_).count(), *ready});
      co_return std::nullopt;
    }
    if (group_->any_exited()) co_return co_await failed_start(std::move(said));
    if (start_is_given_up()) co_return given_up_start();
    if (Clock::now() >= deadline) {
      said = fmt::format("not ready within {} ms (--start-timeout){}", patience.count(), describe_silence());
      StartFailure late = co_await failed_start(std::move(said));
      if (const std::string trouble = loopback_trouble(); !trouble.empty()) {
        late.retirement.detail += "; " + trouble;
        late.permanent = true;
      }
      co_return late;
    }
    co_await wakeup_.wait_until(deadline);
  }
}

// why: what is known besides the exits of ranks; may be empty.
asio::awaitable<StartFailure> Pool::failed_start(std::string why) {
  const auto limit = Clock::now() + kStartDrain;
  // A rank that has lost a peer may end before the peer does, although the peer's exit is the cause. So wait for all
  // exits, or for a permanent failure and the exit of rank 0, which reports for all ranks.
  const auto all_known = [this] {
    return group_->drained() && (group_->all_exited() || (permanently_failed() && group_->rank0_has_ended()));
  };
  while (group_->any_exited() && !all_known() && Clock::now() < limit) co_await wakeup_.wait_until(limit);
  while (const auto incoming = group_->take()) {
    const auto* event = std::get_if<protocol::Event>(&*incoming);
    const auto* refusal = event == nullptr ? nullptr : std::get_if<protocol::ProtocolErrorEvent>(event);
    if (refusal != nullptr && why.empty()) why = refusal->message;
  }
  std::string detail = std::move(why);
  if (group_->any_exited()) {
    const std::string deaths = describe_deaths();
    if (detail.empty()) {
      const std::string last_words = describe_last_words();
      detail = deaths + (last_words.empty() ? describe_silence() : last_words);
    } else {
      detail = fmt::format("{}: {}", deaths, detail);
    }
  }
  StartFailure out = start_failure(RetireReason::start_failed, std::move(detail));
  out.permanent = permanently_failed();
  if (too_few_devices()) {
    out.skip = true;
    out.retirement.detail = fmt::format("this machine has fewer devices than the {} that its ranks need, one each{}",
                                        world_size_, run_->config.device == "cpu" ? "" : " (--device cpu needs none)");
  }
  out.stderr_tails = group_->tails();
  co_await name_frames(*run_, wakeup_, out.stderr_tails);
  co_return out;
}

std::optional<std::string> Pool::refuse(const protocol::ReadyEvent& ready) const {
  if (ready.protocol != protocol::kVersion) {
    return fmt::format("the worker speaks protocol version {}, the driver {}", ready.protocol, protocol::kVersion);
  }
  if (ready.world_size != world_size_) {
    return fmt::format("the worker has {} ranks, not the {} that were started", ready.world_size, world_size_);
  }
  if (run_->config.bound_factor && !lists(ready.capabilities, "options", "bound_factor")) {
    return "the worker does not know --bound-factor: its capabilities.options does not list bound_factor";
  }
  return std::nullopt;
}

bool Pool::permanently_failed() const {
  return std::ranges::any_of(group_->ends(), [](const WorkerGroup::End& end) {
    return end.status && !end.status->signaled && std::ranges::count(kPermanentExits, end.status->code) > 0;
  });
}

bool Pool::too_few_devices() const {
  return std::ranges::any_of(group_->ends(), [](const WorkerGroup::End& end) {
    return end.status && !end.status->signaled && end.status->code == protocol::kExitTooFewDevices;
  });
}

asio::awaitable<std::optional<Retirement>> Pool::check_idle() {
  Outstanding none;
  take_messages(none);
  // The pipes of a rank that ends close a moment before its exit is seen, and the exit is the better explanation.
  const auto limit = Clock::now() + kDeathOfPipes;
  while (lost() && !group_->any_exited() && Clock::now() < limit) co_await wakeup_.wait_until(limit);
  take_messages(none);
  std::optional<Retirement> out;
  if (group_->any_exited()) {
    out = {reason_of_death(none), fmt::format("idle, {}{}", describe_deaths(), describe_last_words())};
  } else if (none.protocol_break) {
    out = {RetireReason::protocol_break, *none.protocol_break};
  } else if (group_->stdin_broken()) {
    out = {RetireReason::stdin_broken, "idle, rank 0 closed its stdin"};
  } else if (group_->stdout_closed()) {
    out = {RetireReason::protocol_break, "idle, rank 0 closed its stdout"};
  } else if (const std::string silent = group_->silent_ranks(); !silent.empty()) {
    out = {RetireReason::crash, "idle, " + silent};
  } else if (host_.pausing()) {
    out = {RetireReason::paused, "the run was paused"};
  }
  co_return out;
}

// "rank 1 died: signal 9 (SIGKILL); rank 0 died: exit 3", in the order of the deaths.
std::string Pool::describe_deaths() {
  std::string out;
  bool killed = false;
  for (const WorkerGroup::End& end : group_->ends()) {
    out += fmt::format("{}{} died: {}", out.empty() ? "" : "; ", end.who, end.how);
    killed = killed || (end.status && end.status->signaled && end.status->code == SIGKILL);
  }
  if (const std::string left = group_->ranks_left(); !left.empty()) out += "; " + left;
  if (killed && oom_kills() > oom_kills_before_) out += "; meanwhile the kernel killed a process as memory ran out";
  return out;
}

// Used for a pool that did not become ready: the worker may have answered in a form that is not the protocol's.
std::string Pool::describe_silence() const {
  const std::string& line = group_->last_chatter();
  if (line.empty()) return "";
  return fmt::format("; the last line of rank 0's stdout that is no message (those begin with \"{}\"): {}",
                     protocol::kResponsePrefix, protocol::cut_text(line, kMostLastWords));
}

// Used for a worker that may have answered, but not at the beginning of a line.
std::string Pool::describe_misplaced_sentinel() const {
  const std::string& line = group_->misplaced_sentinel();
  if (line.empty()) return "";
  return fmt::format("; a line of rank 0's stdout has the sentinel, but does not begin with \"{}\": {}",
                     protocol::kResponsePrefix, protocol::cut_text(line, kMostLastWords));
}

// The last words of the first rank that died and left any; empty if none did.
std::string Pool::describe_last_words() {
  for (const WorkerGroup::End& end : group_->ends()) {
    const std::string line = group_->last_words(end);
    if (!line.empty()) {
      return fmt::format("; last words of {}: {}", end.who, protocol::cut_text(line, kMostLastWords));
    }
  }
  return "";
}

}  // namespace cp_pool
