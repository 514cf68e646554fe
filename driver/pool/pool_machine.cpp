// The life of a pool but for its cases (pool_machine_case.cpp): its start and its end.
#include "driver/pool/pool_machine.h"

#include <array>
#include <csignal>

#include <fmt/format.h>

#include "driver/core/payload.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kStartDrain{200};  // after an exit, for reading the last output
// From SIGKILL until gone; a process that is left after it is stuck in the kernel.
constexpr milliseconds kKillLimit{5000};
constexpr milliseconds kBetweenSweeps{5};
// Exit codes after which another start cannot help.
constexpr std::array kPermanentExits{protocol::kExitNoCommonVersion, protocol::kExitNoDevice,
                                     protocol::kExitTooFewDevices, protocol::kExitCommandNotFound};
constexpr std::array kTooFewDevices{protocol::kExitTooFewDevices};

StartFailure start_failure(RetireReason reason, std::string detail) {
  StartFailure out;
  out.retirement = {reason, std::move(detail)};
  return out;
}

// Whether the worker is asked to shut down, because the reason is not its fault.
bool is_graceful(RetireReason reason) {
  return reason == RetireReason::finished || reason == RetireReason::max_cases || reason == RetireReason::hygiene ||
         reason == RetireReason::interrupted;
}

// Whether ranks are killed without SIGTERM before: after the loss of a rank the others only wait for it, and whoever
// pauses the run waits for their end.
bool kill_at_once(RetireReason reason) {
  return reason == RetireReason::crash || reason == RetireReason::died_after_result || reason == RetireReason::paused;
}

}  // namespace

std::optional<PoolMachine::Finished> PoolMachine::look(Clock::time_point now) {
  now_ = now;
  for (std::optional<State> before; !finished_ && before != state_;) {
    facts_ = hands_.facts();
    before = state_;
    step();
  }
  return std::exchange(finished_, std::nullopt);
}

Clock::time_point PoolMachine::next_look() const {
  const bool tells_progress = state_ == State::running || state_ == State::diagnosing;
  return tells_progress ? std::min(limit_, current_.next()) : limit_;
}

void PoolMachine::step() {
  switch (state_) {
    case State::created:
      return begin();
    case State::awaiting_server:
      return await_server();
    case State::forking:
      return await_forks();
    case State::starting:
      return await_ready();
    case State::start_failing:
      return fail_start();
    case State::idle:
    case State::pipes_closed:
      return await_case();
    case State::running:
      return run();
    case State::cancelling:
      return await_cancelled();
    case State::draining:
    case State::diagnosis_draining:
      return drain();
    case State::fencing:
      return await_fences();
    case State::diagnosing:
      return await_diagnosis();
    case State::showing_stacks:
      return await_stacks();
    case State::shutting_down:
      return shut_down();
    case State::terminating:
      if (ended_or_over_time()) begin_to_kill();
      return;
    case State::killing:
      if (facts_.ranks.all_ended || over_time()) enter(State::sweeping, now_);
      return;
    case State::sweeping:
      return sweep();
    case State::over:
    case State::gone:
      return;
  }
}

void PoolMachine::enter(State state, Clock::time_point limit) {
  state_ = state;
  limit_ = limit;
}

// --- Start ---

void PoolMachine::begin() {
  created_ = now_;
  if (facts_.server.state != ServerFacts::State::none) hands_.start_server();
  enter(State::awaiting_server);  // the server has the time of a start itself
}

void PoolMachine::await_server() {
  std::optional<StartFailure> failure = given_up_start();
  if (facts_.server.state == ServerFacts::State::starting && !failure) return;
  if (!facts_.server.no_rank_starts.empty()) {
    failure = start_failure(RetireReason::start_failed, facts_.server.no_rank_starts);
    failure->permanent = true;
    const std::string words = protocol::clean_text(facts_.server.last_words);
    if (!words.empty()) failure->stderr_tails = {{.rank = -1, .text = words, .of = "the fork server"}};
  }
  if (failure) return after_spawn(std::move(failure));
  const bool forks = facts_.server.state == ServerFacts::State::ready;
  failure = hands_.spawn(forks);
  if (forks && !failure) return enter(State::forking);
  after_spawn(std::move(failure));
}

void PoolMachine::await_forks() {
  if (facts_.ranks.forking) {
    if (given_up_start()) hands_.stop_forking();
    return;  // ends at the latest when the server is given up
  }
  if (facts_.ranks.fork_failed) return begin_to_kill();
  after_spawn(std::nullopt);
}

void PoolMachine::after_spawn(std::optional<StartFailure> failure) {
  PoolSpawned spawned = setup_.pool;
  spawned.pids = hands_.facts().ranks.pids;
  hands_.emit(std::move(spawned));
  if (failure) return fail(*std::move(failure));
  enter(State::starting, now_ + setup_.start_timeout);
}

void PoolMachine::await_ready() {
  while (const auto incoming = hands_.take_message()) {
    if (const auto* bad = std::get_if<ProtocolBreak>(&*incoming)) return begin_to_fail(bad->detail);
    if (const auto* refusal = message_in<protocol::ProtocolErrorEvent>(*incoming)) failing_.why = refusal->message;
    if (const auto* result = message_in<protocol::ResultEvent>(*incoming)) {
      return begin_to_fail(fmt::format("a result for seq {} before the worker was ready", result->seq));
    }
    if (const auto* ready = message_in<protocol::ReadyEvent>(*incoming)) return take_ready(*ready);
  }
  if (any_ended()) return begin_to_fail(std::move(failing_.why));
  if (auto given_up = given_up_start()) return fail(*std::move(given_up));
  if (!over_time()) return;
  failing_.late = true;
  begin_to_fail(
      fmt::format("not ready within {} ms (--start-timeout){}", setup_.start_timeout.count(), describe_silence()));
}

void PoolMachine::take_ready(const protocol::ReadyEvent& ready) {
  if (auto problem = refuse(ready)) {
    // The worker's protocol version and capabilities will be the same next time. A wrong number of ranks may not be.
    failing_.permanent = ready.protocol != protocol::kVersion || ready.world_size == setup_.pool.world_size;
    return begin_to_fail(*std::move(problem));
  }
  capabilities_ = ready.capabilities;
  shared_gpus_ = protocol::shared_gpus(ready);
  enter(State::idle);
  hands_.emit(PoolReady{{ready}, setup_.pool.pool, in_ms(now_ - created_)});
  finished_ = Ready{};
}

// why: what is known besides the exits of ranks; may be empty.
void PoolMachine::begin_to_fail(std::string why) {
  failing_.why = std::move(why);
  enter(State::start_failing, now_ + kStartDrain);
}

void PoolMachine::fail_start() {
  const RankFacts& ranks = facts_.ranks;
  // A rank that has lost a peer may end before the peer does, although the peer's exit is the cause. So wait for all
  // exits, or for a permanent failure and the exit of rank 0, which reports for all ranks.
  const bool permanent = any_exited_with(kPermanentExits);
  const bool all_known = ranks.drained && (ranks.all_ended || (permanent && ranks.rank0_ended));
  if (any_ended() && !all_known && !over_time()) return;
  std::string detail = std::move(failing_.why);
  while (const auto incoming = hands_.take_message()) {
    const auto* refusal = message_in<protocol::ProtocolErrorEvent>(*incoming);
    if (refusal != nullptr && detail.empty()) detail = refusal->message;
  }
  if (any_ended()) {
    const std::string deaths = describe_deaths();
    if (detail.empty()) {
      const std::string last_words = describe_last_words();
      detail = deaths + (last_words.empty() ? describe_silence() : last_words);
    } else {
      detail = fmt::format("{}: {}", deaths, detail);
    }
  }
  StartFailure out = start_failure(RetireReason::start_failed, std::move(detail));
  out.permanent = permanent || failing_.permanent;
  if (any_exited_with(kTooFewDevices)) {
    out.skip = true;
    out.retirement.detail =
        fmt::format("this machine has fewer devices than the {} that its ranks need, one each{}",
                    setup_.pool.world_size, setup_.home->device == "cpu" ? "" : " (--device cpu needs none)");
  }
  hands_.keep_tails();
  const std::string trouble = failing_.late ? hands_.loopback_trouble() : "";
  if (!trouble.empty()) {
    out.retirement.detail += "; " + trouble;
    out.permanent = true;
  }
  fail(std::move(out));
}

void PoolMachine::fail(StartFailure failure) {
  enter(State::over);
  finished_ = std::move(failure);
}

// Why the start is given up; nullopt: it goes on.
std::optional<StartFailure> PoolMachine::given_up_start() const {
  if (facts_.stop.abandon_running())
    return start_failure(RetireReason::interrupted, "the run was stopped before it was ready");
  if (facts_.pausing) return start_failure(RetireReason::paused, "the run was paused before it was ready");
  if (!facts_.wanted) return start_failure(RetireReason::finished, "no case was left for it before it was ready");
  return std::nullopt;
}

std::optional<std::string> PoolMachine::refuse(const protocol::ReadyEvent& ready) const {
  if (ready.protocol != protocol::kVersion) {
    return fmt::format("the worker speaks protocol version {}, the driver {}", ready.protocol, protocol::kVersion);
  }
  if (ready.world_size != setup_.pool.world_size) {
    return fmt::format("the worker has {} ranks, not the {} that were started", ready.world_size,
                       setup_.pool.world_size);
  }
  if (setup_.home->bound_factor && !lists(ready.capabilities, "options", "bound_factor")) {
    return "the worker does not know --bound-factor: its capabilities.options does not list bound_factor";
  }
  return std::nullopt;
}

bool PoolMachine::any_exited_with(std::span<const int> exit_codes) const {
  return std::ranges::any_of(facts_.ranks.ends, [&](const RankEnd& end) {
    return end.status && !end.status->signaled && std::ranges::count(exit_codes, end.status->code) > 0;
  });
}

// --- What the ranks said last ---

// "rank 1 died: signal 9 (SIGKILL); rank 0 died: exit 3", in the order of the deaths.
std::string PoolMachine::describe_deaths() {
  std::string out;
  bool killed = false;
  for (const RankEnd& end : facts_.ranks.ends) {
    out += fmt::format("{}{} died: {}", out.empty() ? "" : "; ", end.who, end.how);
    killed = killed || (end.status && end.status->signaled && end.status->code == SIGKILL);
  }
  if (!facts_.ranks.left.empty()) out += "; " + facts_.ranks.left;
  if (killed && hands_.memory_ran_out()) out += "; meanwhile the kernel killed a process as memory ran out";
  return out;
}

// The last words of the first rank that died and left any; empty if none did.
std::string PoolMachine::describe_last_words() {
  for (const RankEnd& end : facts_.ranks.ends) {
    const std::string line = hands_.last_words(end);
    if (!line.empty()) {
      return fmt::format("; last words of {}: {}", end.who, protocol::cut_text(line, kMostLastWords));
    }
  }
  return "";
}

// Used for a pool that did not become ready: the worker may have answered in a form that is not the protocol's.
std::string PoolMachine::describe_silence() const {
  if (facts_.ranks.last_chatter.empty()) return "";
  return fmt::format("; the last line of rank 0's stdout that is no message (those begin with \"{}\"): {}",
                     protocol::kResponsePrefix, protocol::cut_text(facts_.ranks.last_chatter, kMostLastWords));
}

// --- End ---

void PoolMachine::retire(Retirement retirement, Clock::time_point now) {
  if (retirement_) return;
  now_ = now;
  const bool asks = state_ == State::idle && is_graceful(retirement.reason);
  retirement_ = std::move(retirement);
  if (asks) {
    hands_.send(protocol::ShutdownRequest{});
    hands_.close_stdin();
  }
  enter(State::shutting_down, asks ? now_ + setup_.home->grace : now_);
}

void PoolMachine::shut_down() {
  if (!ended_or_over_time()) return;
  const bool no_grace = kill_at_once(retirement_->reason) || retirement_->at_once;
  if (facts_.ranks.all_ended || (no_grace && facts_.ranks.die_with_their_processes)) return begin_to_kill();
  hands_.terminate();
  enter(State::terminating, now_ + setup_.home->grace);
}

void PoolMachine::begin_to_kill() {
  hands_.kill();
  clean_sweeps_ = 0;
  kill_limit_ = now_ + kKillLimit;
  enter(State::killing, kill_limit_);
}

void PoolMachine::sweep() {
  if (!over_time()) return;
  while (clean_sweeps_ < kCleanSweeps && now_ < kill_limit_) {
    if (hands_.kill_processes() > 0) {
      clean_sweeps_ = 0;
      limit_ = now_ + kBetweenSweeps;
      return;
    }
    ++clean_sweeps_;
  }
  PoolRetired retired = hands_.forget_ranks();
  if (!retirement_) {  // the pool was forked only in part: all ranks are started anew, one by one
    std::optional<StartFailure> given_up = given_up_start();
    return after_spawn(given_up ? std::move(given_up) : hands_.spawn(false));
  }
  retired.pool = setup_.pool.pool;
  retired.reason = retirement_->reason;
  retired.detail = std::move(retirement_->detail);
  retired.cases = cases_;
  hands_.emit(std::move(retired));
  enter(State::gone);
  finished_ = Gone{};
}

}  // namespace cp_pool
