#include "driver/service/program.h"

#include <array>
#include <fstream>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/core/mapped.h"
#include "driver/os/spawn.h"
#include "driver/service/service_run.h"

namespace cp_pool::service {
namespace {

// Parses a line of /proc/PID/maps, see proc(5): "begin-end perms offset device inode path". The path extends to the end
// of the line, and a newline in it is written as \012. " (deleted)" follows if the file has lost its name.
std::string path_of_mapping(const std::string& line) {
  constexpr std::string_view kDeleted = " (deleted)";
  constexpr std::string_view kNewline = "\\012";
  std::istringstream in{line};
  std::string skipped;
  std::string permissions;
  in >> skipped >> permissions >> skipped >> skipped >> skipped >> std::ws;
  std::string path;
  if (!std::getline(in, path) || permissions.find('x') == std::string::npos) return "";
  if (path.ends_with(kDeleted)) path.resize(path.size() - kDeleted.size());
  for (std::size_t at = 0; (at = path.find(kNewline, at)) != std::string::npos; ++at) {
    path.replace(at, kNewline.size(), "\n");
  }
  return path;
}

}  // namespace

FileStamp::FileStamp(std::filesystem::path path) : file(std::move(path)) {
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  struct stat found{};
  if (::stat(file.c_str(), &found) != 0) return;
  device = found.st_dev;
  inode = found.st_ino;
  size = found.st_size;
  mtime_ns = found.st_mtim.tv_sec * kNanoseconds + found.st_mtim.tv_nsec;
}

bool is_of_system(const std::filesystem::path& path) {
  const std::string text = path.lexically_normal().string() + '/';
  constexpr std::array<std::string_view, 6> kFolders{"/usr/", "/lib/", "/lib32/", "/lib64/", "/bin/", "/sbin/"};
  return !text.starts_with("/usr/local/") &&
         std::ranges::any_of(kFolders, [&](std::string_view folder) { return text.starts_with(folder); });
}

std::vector<std::filesystem::path> mapped_files(pid_t pid) {
  std::ifstream maps{fmt::format("/proc/{}/maps", pid)};
  std::set<std::filesystem::path> files;
  for (std::string line; std::getline(maps, line);) {
    // Names that the kernel gives to mappings of devices and of memory without a file.
    constexpr std::array<std::string_view, 4> kOthers{"/memfd:", "/dev/", "/SYSV", "/anon_hugepage"};
    const std::string path = path_of_mapping(line);
    const auto is_prefix = [&](std::string_view other) { return path.starts_with(other); };
    if (path.starts_with('/') && std::ranges::none_of(kOthers, is_prefix) && !is_of_system(path)) files.insert(path);
  }
  return {files.begin(), files.end()};
}

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
  if (rests_ && !fork_server_->facts().no_rank_starts.empty()) return end_idle_fork_server();
  if (rests_ && idle_.count() > 0) rest_.set(idle_, [this] { end_idle_fork_server(); });
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
      config_(wanted_by == nullptr ? program.config() : wanted_by->config()),
      context_(host, config_, *this),
      stamps_(mapped(program.files(), [](const auto& file) { return FileStamp(file); })) {
  program_.count_pool(1);
  if (wanted_by == nullptr) return;
  // The ranks are started as the program says.
  static_cast<RankProgram&>(config_) = program.config();
  config_.process = program.config().process;
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
    if (spawned_ && !spawned_->pids.empty()) {
      for (auto& file : mapped_files(spawned_->pids.front())) stamps_.emplace_back(std::move(file));
      // What the worker lists in its capabilities because its code is not mapped, like Python's.
      const auto listed = ready->capabilities.find("files");
      const bool lists = listed != ready->capabilities.end() && listed->is_array();
      for (const auto& file : lists ? *listed : nlohmann::json::array()) {
        if (file.is_string()) stamps_.emplace_back(file.get<std::string>());
      }
    }
  }
  for (ServiceRun* const run : known_to_) run->emit(event);
}

}  // namespace cp_pool::service
