// What a service starts the ranks of pools with, and the pools themselves as it knows them beyond the fleet.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "driver/pool/fork_server.h"
#include "driver/pool/pool_host.h"
#include "driver/pool/run_context.h"
#include "driver/pool/wakeup.h"
#include "driver/process/file_stamps.h"
#include "driver/run.h"

namespace cp_pool::service {

class ServiceRun;

// Runs that are equal in this may use the same pools: worker, working directory, environment, device. It is kept while
// a run or a pool has it, and for as long as its fork server stays.
class Launch {
 public:
  // number: of no other launch. config: of the run that is the first. idle: how long a fork server stays without a
  // pool; 0 = for ever.
  Launch(int number, RunConfig config, std::chrono::milliseconds idle, PoolHost& host);

  // A text that is equal for two configurations if their runs may share pools.
  static std::string identity_of(const RunConfig& config);

  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] const RunConfig& config() const { return config_; }
  [[nodiscard]] ForkServer* fork_server() { return fork_server_ ? &*fork_server_ : nullptr; }
  // The worker's own files: what its user edits or builds.
  [[nodiscard]] std::vector<std::filesystem::path> files() const;
  // A run has it.
  void join(ServiceRun& run);
  void leave(ServiceRun& run);
  // A pool of it serves the run: from now on the run is told of the fork server, first of what has become of it so far.
  void introduce(ServiceRun& run);
  // A pool of it has come or gone.
  void count_pool(int change);
  // Ends a fork server that has no pool.
  void end_rest();
  // Nothing keeps it. What on_unused does must not come in the middle of what is being done.
  [[nodiscard]] bool unused() const { return runs_.empty() && pools_ == 0 && !(fork_server_ && rests_); }
  std::function<void()> on_unused;
  // Ends what it keeps; nothing is started any more.
  void close();

 private:
  void make_fork_server();
  void tell(const ForkServerTold& told);
  void note_use();

  int number_;
  RunConfig config_;
  PoolHost& host_;
  std::chrono::milliseconds idle_;
  Timer rest_;
  int pools_ = 0;
  bool rests_ = false;             // the fork server waits for another pool
  std::set<ServiceRun*> runs_;     // that have it
  std::set<ServiceRun*> told_of_;  // of these, those that are told of the fork server
  std::optional<ForkServerTold> told_;
  std::optional<ForkServer> fork_server_;
};

// Where a pool of a service is at home: the configuration that it is started with, and who is told of it.
class PoolHome : private EventSink {
 public:
  // wanted_by: the run whose case waits for the pool; nullptr: it is a spare.
  PoolHome(PoolHost& host, Launch& launch, ServiceRun* wanted_by);
  ~PoolHome() override;

  [[nodiscard]] RunContext& context() { return context_; }
  // Tells the run of the pool, if it does not know it.
  void introduce(ServiceRun& run);
  void forget(ServiceRun& run) { known_to_.erase(&run); }
  // Whether a file of the worker has changed since the pool was started.
  [[nodiscard]] bool is_outdated() const;

 private:
  void on_event(const Event& event) override;

  Launch& launch_;
  RunConfig config_;
  RunContext context_;
  FileStamps stamps_;
  std::optional<FileStamps> mapped_;  // of what its ranks have mapped
  std::optional<PoolSpawned> spawned_;
  std::optional<PoolReady> ready_;
  std::set<ServiceRun*> known_to_;
};

}  // namespace cp_pool::service
