#include "driver/pool/runner.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <map>
#include <utility>

#include <asio/co_spawn.hpp>
#include <asio/post.hpp>

#include "driver/os/machine.h"
#include "driver/ranks/launcher.h"

namespace cp_pool {
namespace {

// The most cases about which an adapter is asked before its ranks start. The pools skip the others.
constexpr std::size_t kMostAsked = 10'000;

// Two signals within this time count as one: timeout(1) and a terminal's hang-up send two at once.
constexpr std::chrono::milliseconds kSameSignal{100};

}  // namespace

CaseExecutor::CaseExecutor() : signals_(io_, SIGINT, SIGTERM) {
  if (!is_ignored(SIGHUP)) signals_.add(SIGHUP);
}

void CaseExecutor::begin() {
  start_ = Clock::now();
  cpu_before_ = own_cpu_ms();
}

void CaseExecutor::watch(std::chrono::milliseconds tick) {
  watching_ = true;
  watch_signals();
  if (tick.count() > 0) clock_.every(tick, [this] { on_tick(); });
}

void CaseExecutor::watch_signals() {
  signals_.async_wait([this](asio::error_code error, int /*signal*/) {
    if (error) return;
    if (watching_) watch_signals();
    const auto now = std::chrono::steady_clock::now();
    if (!first_signal_) {
      first_signal_ = now;
      on_interrupt(/*again=*/false);
    } else if (now - *first_signal_ > kSameSignal && !std::exchange(second_signal_, true)) {
      on_interrupt(/*again=*/true);
    }
  });
}

void CaseExecutor::close() {
  watching_ = false;
  signals_.cancel();
  clock_.cancel();
}

RunResult CaseExecutor::result(const Ledger& ledger, bool interrupted, const RunConfig& config) const {
  RunResult out{.finished = ledger.close(interrupted, demands_of(config))};
  out.finished.duration_ms = in_ms(Clock::now() - start_);
  out.finished.driver_cpu_ms = own_cpu_ms() - cpu_before_;
  return out;
}

Runner::Runner(const RunConfig& config, EventSink& sink, std::optional<int> slots)
    : host_(io()),
      context_(host_, config, sink),
      client_(0, context_),
      fleet_(host_, *this,
             {.scheduling = {.slots = slots,
                             .slots_of_hosts = slots_of(config.hosts),
                             .cases_of_a_pool = config.pool_max_cases,
                             .spare = config.spare,
                             // It would disturb what is timed, and a launcher may have no room for both pools.
                             .early_starts = !config.perf && config.launcher.kind == LauncherKind::local},
              .gpus = config.gpus,
              .hosts = config.hosts}),
      job_control_(host_, [this](Clock::duration paused) { go_on(paused); }),
      global_timeout_(io()) {
  fleet_.add_client(client_);
  client_.on_finished = [this](const CaseFinished& finished) {
    if (on_case_finished) on_case_finished(finished);
  };
  fleet_.on_error = [this](const std::exception_ptr& error) { fail(error); };
  fleet_.on_done = [this] { stop_watching_if_done(); };
  add_program({});
}

int Runner::add_program(OwnRanks own) {
  Program& program = *programs_.emplace_back(std::make_unique<Program>());
  program.config = config_for(context_.config, own);
  program.own = std::move(own);
  const int number = static_cast<int>(programs_.size()) - 1;
  if (program.config.fork_server.empty()) return number;
  ForkServer::Config server;
  server.run = &program.config;
  server.tell = [this](const ForkServerTold& told) { context_.emit(told); };
  server.cases = [this, number, &program] {
    std::vector<std::string> lines;
    for (const auto& [job, named] : fleet_.cases_of(number, kMostAsked)) {
      program.asked.push_back(job);
      lines.push_back(named->payload->json().dump());
    }
    return lines;
  };
  // Skips what the adapter would skip, so that no pool starts for it.
  server.skips = [this, &program](const std::vector<std::string>& reasons) {
    std::map<std::size_t, std::string> skipped;
    for (std::size_t i = 0; i < reasons.size(); ++i) {
      if (!reasons[i].empty()) skipped.emplace(program.asked[i], reasons[i]);
    }
    fleet_.skip(skipped);
  };
  server.on_change = [this, number] {
    fleet_.hold_program(number, false);
    host_.notify_all();
  };
  // No pool starts before it is known whether the adapter would skip the cases.
  fleet_.hold_program(number, true);
  program.fork_server.emplace(host_, std::move(server));
  return number;
}

std::size_t Runner::add(Item named) {
  const int number = program_of(named);
  Program& program = *programs_.at(static_cast<std::size_t>(number));
  program.is_needed = true;
  // Posted, so that the server gets all cases that are added at once.
  if (program.fork_server && program.fork_server->is(ForkServer::State::unused) &&
      !std::exchange(will_start_fork_servers_, true)) {
    asio::post(io(), [this] {
      will_start_fork_servers_ = false;
      for (std::size_t i = 0; i < programs_.size(); ++i) {
        auto& server = programs_[i]->fork_server;
        if (!server || !programs_[i]->is_needed || !server->is(ForkServer::State::unused)) continue;
        server->start();
        if (!server->is(ForkServer::State::starting)) fleet_.hold_program(static_cast<int>(i), false);
      }
    });
  }
  return fleet_.add(client_, std::move(named), number);
}

int Runner::program_of(const Item& named) {
  OwnRanks own = named.ranks.value_or(OwnRanks{});
  own.slots = 0;
  const auto known =
      std::ranges::find(programs_, own, [](const auto& program) -> const OwnRanks& { return program->own; });
  return known != programs_.end() ? static_cast<int>(known - programs_.begin()) : add_program(std::move(own));
}

RunResult Runner::run(const RunStarted& header) {
  begin();
  context_.start = start();
  context_.emit(started_now(header, context_.config.implementation));
  watch(context_.config.tick);
  job_control_.start();
  if (context_.config.global_timeout.count() > 0) {
    global_timeout_.set(context_.config.global_timeout, [this] {
      context_.stop.global_timeout = true;
      abandon();
      context_.tell_stopping(RunStopping::Reason::global_timeout);
    });
  }
  stop_watching_if_done();
  for (bool done = false; !done;) {
    try {
      io().run();
      done = true;
    } catch (...) {
      fail(std::current_exception());
    }
  }
  if (error_) std::rethrow_exception(error_);

  RunResult out = result(client_.ledger, context_.stop.interrupted, context_.config);
  context_.emit(out.finished);
  return out;
}

void Runner::fail(const std::exception_ptr& error) {
  if (!error_) error_ = error;
  context_.stop.internal_error = true;
  abandon();
}

void Runner::go_on(Clock::duration paused) {
  host_.notify_all();
  fleet_.handle_stop();
  if (paused.count() > 0) context_.emit(RunPaused{in_ms(paused)});
}

void Runner::abandon() {
  host_.notify_all();
  fleet_.handle_stop();
  if (on_abandon) on_abandon();
}

// Starts the triage of the failures, once, unless the run is stopped. Returns whether it was started.
bool Runner::begin_triage() {
  if (!context_.config.triage || triage_begun_ || error_ || context_.stop.abandon_running()) return false;
  if (context_.history->failures().empty()) return false;
  triage_begun_ = triaging_ = true;
  const auto start = [this](const Item& named) { return start_of(0, program_of(named)); };
  asio::co_spawn(io(), triage_failures(context_, fleet_, start), [this](const std::exception_ptr& error) {
    triaging_ = false;
    if (error) fail(error);
    stop_watching_if_done();
  });
  return true;
}

// When the run is done, cancels everything that would keep the event loop running.
void Runner::stop_watching_if_done() {
  if (!done() || begin_triage()) return;
  for (const auto& program : programs_) {
    if (program->fork_server) program->fork_server->close();
  }
  close();
  job_control_.close();
  global_timeout_.cancel();
}

void Runner::on_interrupt(bool again) {
  context_.stop.interrupted = true;
  context_.stop.kill_at_once |= again;
  abandon();
  if (!done()) context_.tell_stopping(again ? RunStopping::Reason::killed : RunStopping::Reason::interrupted);
}

void Runner::on_tick() {
  context_.sink.on_tick();
  const auto& asked = context_.config.status_requests;
  const std::uint64_t number = asked ? asked() : 0;
  if (number != std::exchange(context_.status_requests, number)) host_.notify_all();
}

RunResult run_cases(const std::vector<Item>& cases, const RunConfig& config, const RunStarted& header,
                    EventSink& sink) {
  Runner runner(config, sink, slot_count(config));
  return run_cases(runner, cases, header);
}

RunResult run_cases(CaseExecutor& runner, const std::vector<Item>& cases, const RunStarted& header) {
  for (const Item& named : cases) runner.add(named);
  runner.no_more_cases();
  return runner.run(header);
}

}  // namespace cp_pool
