// The service's knowledge of its pools beyond the fleet: how their ranks are started (Program), and which runs get
// their events (PoolHome).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <sys/types.h>
#include <vector>

#include "driver/core/run.h"
#include "driver/os/wakeup.h"
#include "driver/pool/run_context.h"
#include "driver/ranks/fork_server.h"
#include "driver/ranks/pool_host.h"

namespace cp_pool::service {

// The state of a file now: it has changed if another stamp of it differs, so also if another file was renamed to its
// name. A missing file is a state like any other. Symbolic links are followed.
struct FileStamp {
  explicit FileStamp(std::filesystem::path path);
  bool operator==(const FileStamp&) const = default;

  std::filesystem::path file;
  dev_t device = 0;
  ino_t inode = 0;  // 0: there is no file
  std::int64_t size = 0;
  std::int64_t mtime_ns = 0;  // nanoseconds since 1970
};

// Whether the path is below /usr or below /lib*, /bin or /sbin in the root folder, so that a package manager owns it
// and nobody works on it. /usr/local does not count.
bool is_of_system(const std::filesystem::path& path);

// Returns the program and the libraries that a process has mapped (/proc/PID/maps), except those of the system and
// those without a name in the file system. Sorted, each once. Empty if the process is gone.
std::vector<std::filesystem::path> mapped_files(pid_t pid);

class ServiceRun;

// Runs with the same worker, working directory, environment and device share a program and may use the same pools. A
// program exists as long as a run or a pool uses it, or its fork server is kept.
class Program {
 public:
  // number: unique among programs. config: of the first run. idle: how long a fork server is kept without a pool; 0 =
  // for ever.
  Program(int number, RunConfig config, std::chrono::milliseconds idle, PoolHost& host);

  // Returns a text that is equal for two configurations if their runs may share pools.
  static std::string identity_of(const RunConfig& config);

  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] const RunConfig& config() const { return config_; }
  [[nodiscard]] ForkServer* fork_server() { return fork_server_ ? &*fork_server_ : nullptr; }
  // Returns the worker's own files, which its user may edit or build.
  [[nodiscard]] std::vector<std::filesystem::path> files() const;
  // A run begins or ceases to use the program.
  void join(ServiceRun& run) { runs_.insert(&run); }
  void leave(ServiceRun& run);
  // Called when a pool of the program serves the run. From now on the run gets the events of the fork server, beginning
  // with the last one so far.
  void introduce(ServiceRun& run);
  // A pool of the program was started (+1) or is gone (-1).
  void count_pool(int change);
  // Ends the fork server if it has no pool.
  void end_idle_fork_server();
  // Whether nothing uses the program. on_unused is called in the middle of other functions, so it must not destroy the
  // program at once.
  [[nodiscard]] bool unused() const { return runs_.empty() && pools_ == 0 && !(fork_server_ && rests_); }
  std::function<void()> on_unused;
  // Ends the fork server. Nothing may be started afterwards.
  void close();

 private:
  void make_fork_server();
  void tell(const ForkServerTold& told);
  void note_use() {
    if (unused() && on_unused) on_unused();
  }

  int number_;
  RunConfig config_;
  PoolHost& host_;
  std::chrono::milliseconds idle_;
  Alarm rest_;
  int pools_ = 0;
  bool rests_ = false;             // the fork server is kept without a pool
  std::set<ServiceRun*> runs_;     // runs that use the program
  std::set<ServiceRun*> told_of_;  // runs that get the events of the fork server
  std::optional<ForkServerTold> told_;
  std::optional<ForkServer> fork_server_;
};

// The home of a pool of the service (PoolOwner::home): the configuration that it is started with, and the runs that get
// its events.
class PoolHome : private EventSink {
 public:
  // wanted_by: the run whose case waits for the pool; nullptr: the pool is a spare.
  PoolHome(PoolHost& host, Program& program, ServiceRun* wanted_by);
  ~PoolHome() override;

  [[nodiscard]] RunContext& context() { return context_; }
  // Tells the run of the pool, if the run does not know it.
  void introduce(ServiceRun& run);
  void forget(ServiceRun& run) { known_to_.erase(&run); }
  // Whether a file of the worker has changed since the pool was started.
  [[nodiscard]] bool is_outdated() const {
    return std::ranges::any_of(stamps_, [](const FileStamp& stamp) { return FileStamp(stamp.file) != stamp; });
  }

 private:
  void on_event(const Event& event) override;

  Program& program_;
  RunConfig config_;
  RunContext context_;
  std::vector<FileStamp> stamps_;  // of the program's files, and of those that its ranks have mapped
  std::optional<PoolSpawned> spawned_;
  std::optional<PoolReady> ready_;
  std::set<ServiceRun*> known_to_;
};

}  // namespace cp_pool::service
