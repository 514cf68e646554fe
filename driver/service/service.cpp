#include "driver/service/service.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <asio/post.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/os/machine.h"
#include "driver/service/socket.h"
#include "worker/protocol/environment.h"

namespace cp_pool::service {
namespace {

constexpr std::ptrdiff_t kMostClients = 256;
constexpr std::ptrdiff_t kMostOfAProcess = 64;  // so that one runaway process does not lock out the others
constexpr std::chrono::seconds kMemoryPeriod{1};
constexpr std::chrono::seconds kAcceptAgain{1};

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

std::optional<std::string> value_of(const std::vector<std::string>& entries, const std::string& name) {
  for (const std::string& entry : entries) {
    if (entry.starts_with(name + '=')) return entry.substr(name.size() + 1);
  }
  return std::nullopt;
}

}  // namespace

// --- Pools of one device kind ---

RunContext& Service::Devices::home(int pool, int program, const FleetClient* wanted_by) {
  ServiceRun* const run = wanted_by == nullptr ? nullptr : service_.run_of(*wanted_by);
  auto& home = homes_[pool] = std::make_unique<PoolHome>(service_.host_, *service_.programs_.at(program), run);
  return home->context();
}

void Service::Devices::kill_at_once() {
  for (const auto& [pool, home] : homes_) {
    home->context().stop.interrupted = true;
    home->context().stop.kill_at_once = true;
  }
  fleet.handle_stop();
}

// --- Runs ---

Service::Service(ServiceConfig config)
    : config_(std::move(config)),
      signals_(io_, SIGINT, SIGTERM),
      job_control_(host_, [this](Clock::duration paused) { go_on(paused); }),
      idle_exit_(io_),
      memory_(io_),
      accept_again_(io_) {
  if (!is_ignored(SIGHUP)) signals_.add(SIGHUP);
  FleetSettings cpu{
      .slots = config_.cpu_slots, .idle_time = config_.idle, .turn = config_.turn, .spare = config_.spare};
  FleetSettings gpu = cpu;
  devices_.emplace("cpu", std::make_unique<Devices>(*this, Fleet::Config{.scheduling = cpu}));
  if (config_.gpu_slots == 0) return;
  gpu.slots = config_.gpu_slots;
  gpu.spare = false;
  devices_.emplace("cuda", std::make_unique<Devices>(*this, Fleet::Config{.scheduling = gpu, .gpus = config_.gpus}));
}

RunConfig Service::config_of(const Open& open) const {
  RunConfig out;
  static_cast<RunSettings&>(out) = open;
  if (out.worker_command.empty()) {
    out.worker_command = config_.worker_command;
    // The name of a worker of its own is in the client's own run_started.
    out.implementation = config_.implementation;
  }
  if (out.worker_command.empty()) throw std::invalid_argument("open: worker: it is required");
  if (out.retries.on.empty()) out.retries.on = Retries{}.on;
  if (!devices_.contains(open.device)) {
    throw std::invalid_argument(fmt::format("open: device: this service has no device \"{}\"", open.device));
  }
  ProcessEnvironment process;
  process.folder = open.folder;
  if (open.folder.empty()) process.folder = std::filesystem::current_path();
  if (!process.folder.is_absolute()) throw std::invalid_argument("open: folder: the path is not absolute");
  if (open.device == "cuda" && open.environment &&
      value_of(*open.environment, kVisible) != protocol::process_variable(kVisible)) {
    throw std::invalid_argument("open: environment: CUDA_VISIBLE_DEVICES differs from the service's");
  }
  process.environment = open.environment ? with_rank_variables(environment_, *open.environment) : environment_;
  out.process = std::move(process);
  return out;
}

Program& Service::program_of(const RunConfig& config) {
  std::string identity = Program::identity_of(config);
  if (const auto known = program_numbers_.find(identity); known != program_numbers_.end()) {
    return *programs_.at(known->second);
  }
  const int number = ++last_program_;
  program_numbers_.emplace(std::move(identity), number);
  auto made = std::make_unique<Program>(number, config, config_.idle, host_);
  made->on_unused = [this, number] { asio::post(io_, [this, number] { forget_if_unused(number); }); };
  return *programs_.emplace(number, std::move(made)).first->second;
}

// Forgets unused programs, because clients may bring any number of different environments.
void Service::forget_if_unused(int program) {
  const auto known = programs_.find(program);
  if (known == programs_.end() || !known->second->unused()) return;
  devices_.at(known->second->config().device)->fleet.forget_program(program);
  program_numbers_.erase(Program::identity_of(known->second->config()));
  programs_.erase(known);
}

std::unique_ptr<ServiceRun> Service::begin_run(const Open& open, ServiceRun::Functions functions) {
  RunConfig config = config_of(open);
  Program& program = program_of(config);
  const int number = ++last_run_;
  Fleet& fleet = devices_.at(config.device)->fleet;
  functions.find_program = [this](const RunConfig& wanted) -> Program& { return program_of(wanted); };
  auto run = std::make_unique<ServiceRun>(number, open, std::move(config), program, fleet, host_, std::move(functions));
  runs_.emplace(number, run.get());
  return run;
}

void Service::forget(ServiceRun& run) {
  runs_.erase(run.number());
  for (const auto& [kind, devices] : devices_) devices->forget(run);
}

ServiceRun* Service::run_of(const FleetClient& client) {
  const auto run = runs_.find(client.number);
  return run == runs_.end() ? nullptr : run->second;
}

// --- Clients ---

void Service::listen(int listening) {
  listening_.emplace(io_, ::fcntl(listening, F_DUPFD_CLOEXEC, 3));
  accept();
}

void Service::accept() {
  listening_->async_wait(asio::posix::stream_descriptor::wait_read, [this](asio::error_code error) {
    if (error || !listening_) return;
    UniqueFd connection{::accept4(listening_->native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    const bool exhausted = !connection && (errno == EMFILE || errno == ENFILE);
    if (connection) let_in(std::move(connection));
    if (!exhausted) return accept();
    // The connection stays in the socket's queue, which would wake this loop again at once. So try again a little
    // later, when a descriptor may be free.
    accept_again_.set(kAcceptAgain, [this] {
      if (listening_) accept();
    });
  });
}

void Service::let_in(UniqueFd connection) {
  const auto peer = peer_of(connection.get());
  const auto is_there = [](const auto& kept) { return !kept.first->lost(); };
  std::string why;
  if (!peer || peer->uid != ::geteuid()) {
    why = fmt::format("this service is that of user {}", ::geteuid());
  } else if (std::ranges::count_if(sessions_, is_there) >= kMostClients) {
    why = fmt::format("this service has its maximum of {} clients", kMostClients);
  } else if (const auto of_process = [&](const auto& kept) { return is_there(kept) && kept.first->pid() == peer->pid; };
             std::ranges::count_if(sessions_, of_process) >= kMostOfAProcess) {
    why = fmt::format("process {} has its maximum of {} clients on this service", peer->pid, kMostOfAProcess);
  }
  if (!why.empty()) {
    // The socket's buffer is empty, so this does not block.
    const std::string line = line_of(Refused{.message = why, .fatal = true});
    (void)::send(connection.get(), line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return;
  }
  UniqueFd out{::fcntl(connection.get(), F_DUPFD_CLOEXEC, 3)};
  if (!out) return;
  begin_session(std::move(connection), std::move(out), peer->pid);
}

void Service::serve_one(UniqueFd in, UniqueFd out) {
  one_client_ = true;
  begin_session(std::move(in), std::move(out), ::getppid());
}

void Service::begin_session(UniqueFd in, UniqueFd out, pid_t pid) {
  auto session = std::make_unique<Session>(io_, *this, std::move(in), std::move(out), pid);
  Session& begun = *session;
  sessions_.emplace(&begun, std::move(session));
  idle_exit_.cancel();
  begun.start();
}

void Service::forget(Session& session) {
  sessions_.erase(&session);
  if (one_client_) begin_stop("its client has left");
  watch_idleness();
  end_if_done();
}

// --- Start and end ---

void Service::run() {
  watch_signals();
  job_control_.start();
  watch_idleness();
  memory_.every(kMemoryPeriod, [this] {
    if (stopping_ || !memory_is_short()) return;
    for (const auto& [kind, devices] : devices_) devices->fleet.retire_idle_pools();
    for (const auto& [number, program] : programs_) program->end_idle_fork_server();
  });
  for (const auto& [kind, devices] : devices_) {
    devices->fleet.on_error = [](const std::exception_ptr& error) { std::rethrow_exception(error); };
    devices->fleet.on_done = [this] { end_if_done(); };
  }
  io_.run();
}

void Service::begin_stop(const std::string& why) {
  if (std::exchange(stopping_, true)) return;
  idle_exit_.cancel();
  for (const auto& [session, kept] : sessions_) session->drain(why);
  end_if_done();
}

// Ends runs first, then pools, then everything else that keeps the event loop running.
void Service::end_if_done() {
  if (!stopping_ || !runs_.empty()) return;
  bool done = true;
  for (const auto& [kind, devices] : devices_) {
    if (!devices->fleet.closed()) devices->fleet.no_more_cases();
    done = done && devices->fleet.done();
  }
  if (!done) return;
  for (const auto& [number, program] : programs_) program->close();
  signals_.cancel();
  job_control_.close();
  idle_exit_.cancel();
  memory_.cancel();
  accept_again_.cancel();
  // Clients that have been told of the stop get a moment to read it. Nobody waits longer for clients that do not read.
  if (sessions_.empty()) return io_.stop();
  idle_exit_.set(std::chrono::milliseconds(200), [this] { io_.stop(); });
}

void Service::go_on(Clock::duration paused) {
  host_.notify_all();
  for (const auto& [kind, devices] : devices_) devices->fleet.handle_stop();
  if (paused.count() <= 0) return;
  for (const auto& [number, run] : runs_) run->emit(RunPaused{in_ms(paused)});
}

void Service::watch_signals() {
  signals_.async_wait([this](asio::error_code error, int /*signal*/) {
    if (error) return;
    if (stopping_) {
      for (const auto& [session, kept] : sessions_) session->cancel_all(true);
      for (const auto& [kind, devices] : devices_) devices->kill_at_once();
      host_.notify_all();
    }
    begin_stop("it was sent a signal");
    watch_signals();
  });
}

void Service::watch_idleness() {
  if (config_.idle_exit.count() <= 0 || stopping_ || !sessions_.empty() || one_client_) return;
  idle_exit_.set(config_.idle_exit, [this] {
    if (sessions_.empty()) begin_stop("no client was connected for the time of --idle-exit");
  });
}

// --- Status ---

Status Service::status() {
  Status out;
  out.pid = ::getpid();
  out.version = CP_POOL_VERSION;
  out.for_ms = in_ms(Clock::now() - since_);
  out.stopping = stopping_;
  out.counts = counts_;
  for (const auto& [kind, devices] : devices_) add_pools(kind, *devices, out);
  for (const auto& [session, kept] : sessions_) {
    if (!session->lost()) out.clients.push_back(session->status());
  }
  std::ranges::sort(out.clients, {}, &ClientStatus::pid);
  return out;
}

void Service::add_pools(const std::string& device, Devices& devices, Status& status) {
  DeviceStatus& total = status.devices.emplace_back();
  total.device = device;
  total.slots = device == "cpu" ? config_.cpu_slots : config_.gpu_slots;
  if (device == "cuda") total.gpus = config_.gpus;
  for (const auto& [number, pool] : devices.fleet.pools()) {
    PoolStatus& out = status.pools.emplace_back();
    const RunConfig& config = programs_.at(pool.program)->config();
    out.pool = pool.pool->id();
    out.worker = fmt::format("{}", fmt::join(config.worker_command, " "));
    if (config.process) out.folder = config.process->folder.string();
    out.world_size = pool.world_size;
    out.state = name_of(pool.state);
    out.for_ms = in_ms(Clock::now() - pool.since);
    out.cases = pool.cases;
    out.slots = pool.slots;
    out.pids = pool.pool->pids();
    total.held += static_cast<int>(pool.slots.size());
    const Job* const job = devices.fleet.job_of(pool);
    if (job == nullptr) continue;
    out.runs = job->named.id;
    for (const auto& [session, kept] : sessions_) {
      for (const auto& [name, run] : session->runs()) {
        if (!session->lost() && run->is(*job->client)) out.client = session->pid();
      }
    }
  }
}

}  // namespace cp_pool::service
