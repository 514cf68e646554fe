#include "driver/service/program.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "driver/os/spawn.h"
#include "driver/service/service_run.h"

namespace cp_pool::service {
namespace {

// Returns the files that a rank has mapped, and those that the worker lists in its capabilities because its code is not
// mapped, like Python's.
std::vector<std::filesystem::path> files_of_ranks(int pid, const PoolReady& ready) {
  std::vector<std::filesystem::path> out = mapped_files(pid);
  const auto told = ready.ready.capabilities.find("files");
  if (told == ready.ready.capabilities.end() || !told->is_array()) return out;
  for (const auto& file : *told) {
    if (file.is_string()) out.emplace_back(file.get<std::string>());
  }
  return out;
}

// Returns the configuration of the run, with everything that ranks are started with taken from the program.
RunConfig config_of_home(const Program& program, const ServiceRun* wanted_by) {
  if (wanted_by == nullptr) return program.config();
  RunConfig config = wanted_by->config();
  config.worker_command = program.config().worker_command;
  config.fork_server = program.config().fork_server;
  config.start_timeout_grows = program.config().start_timeout_grows;
  config.process = program.config().process;
  return config;
}

}  // namespace

Program::Program(int number, RunConfig config, std::chrono::milliseconds idle, PoolHost& host)
    : number_(number), config_(std::move(config)), host_(host), idle_(idle), rest_(host.io) {
  make_fork_server();
}

std::string Program::identity_of(const RunConfig& config) {
  nlohmann::json out{config.worker_command, config.fork_server, config.device, config.share_gpus,
                     config.bound_factor.value_or(0)};
  if (config.process) {
    out.push_back(config.process->folder.string());
    out.push_back(config.process->environment);
  }
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void Program::make_fork_server() {
  fork_server_.reset();
  told_.reset();
  if (config_.fork_server.empty()) return;
  ForkServer::Config server;
  server.run = &config_;
  server.tell = [this](const ForkServerTold& told) { tell(told); };
  server.on_change = [this] { host_.notify_all(); };
  fork_server_.emplace(host_, std::move(server));
}

// The files are the executable, unless it belongs to the system, and each word of the command line that names a file,
// as in `python my_worker.py` or FILE.py:NAME.
std::vector<std::filesystem::path> Program::files() const {
  std::vector<std::filesystem::path> out;
  const ProcessEnvironment& process = *config_.process;
  for (const std::string& word : config_.worker_command) {
    const bool is_executable = &word == &config_.worker_command.front();
    const std::size_t name = word.find(".py:");
    const std::string file =
        is_executable ? found_program(word, process) : word.substr(0, name == word.npos ? name : name + 3);
    const std::filesystem::path path = process.folder / file;
    std::error_code unknown;  // an error means that it is no file
    if (std::filesystem::is_regular_file(path, unknown) && !is_of_system(path)) out.push_back(path);
  }
  return out;
}

void Program::tell(const ForkServerTold& told) {
  told_ = told;
  for (ServiceRun* const run : told_of_) run->emit(told);
}

void Program::leave(ServiceRun& run) {
  runs_.erase(&run);
  told_of_.erase(&run);
  note_use();
}

void Program::introduce(ServiceRun& run) {
  if (told_of_.insert(&run).second && told_) run.emit(*told_);
}

// A fork server without a pool ends after a while, so that it does not stay in memory for ever. The next pool starts it
// again.
void Program::count_pool(int change) {
  pools_ += change;
  rest_.cancel();
  rests_ = fork_server_ && pools_ == 0;
  // The next run may find what this one lacked.
  if (rests_ && !fork_server_->no_rank_starts().empty()) return end_idle_fork_server();
  if (rests_ && idle_.count() > 0) {
    rest_.expires_after(idle_);
    rest_.async_wait([this](asio::error_code cancelled) {
      if (!cancelled) end_idle_fork_server();
    });
  }
  note_use();
}

void Program::end_idle_fork_server() {
  if (!std::exchange(rests_, false)) return;
  make_fork_server();
  note_use();
}

void Program::close() {
  rest_.cancel();
  rests_ = false;
  fork_server_.reset();
}

PoolHome::PoolHome(PoolHost& host, Program& program, ServiceRun* wanted_by)
    : program_(program),
      config_(config_of_home(program, wanted_by)),
      context_(host, config_, *this),
      stamps_(program.files()) {
  program_.count_pool(1);
  if (wanted_by == nullptr) return;
  known_to_.insert(wanted_by);
  program_.introduce(*wanted_by);
}

PoolHome::~PoolHome() {
  program_.count_pool(-1);
}

void PoolHome::introduce(ServiceRun& run) {
  if (!known_to_.insert(&run).second) return;
  program_.introduce(run);
  if (spawned_) run.emit(*spawned_);
  if (ready_) run.emit(*ready_);
}

void PoolHome::on_event(const Event& event) {
  if (const auto* spawned = std::get_if<PoolSpawned>(&event)) spawned_ = *spawned;
  if (const auto* ready = std::get_if<PoolReady>(&event)) {
    ready_ = *ready;
    if (spawned_ && !spawned_->pids.empty()) mapped_.emplace(files_of_ranks(spawned_->pids.front(), *ready));
  }
  for (ServiceRun* const run : known_to_) run->emit(event);
}

}  // namespace cp_pool::service
