// A run of the real cp-pool with real ranks. Tests look at it from outside, through its exit code and its events.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "cases/testing/temporary_folder.h"
#include "driver/cli/testing/started_program.h"

namespace cp_pool::test {

// The paths of the programs under test: beside the test program if they are there, as on a machine to which they were
// copied, else where they were built.
std::string driver_program();
std::string worker_program();

// Starts `cp-pool ARGUMENTS --events FILE` with FILE in a folder of its own, removed at the end. Kills what still runs
// when destroyed.
class DriverRun {
 public:
  explicit DriverRun(std::vector<std::string> arguments);
  DriverRun(const DriverRun&) = delete;
  DriverRun& operator=(const DriverRun&) = delete;
  ~DriverRun();

  // Blocks until an event satisfies the predicate and returns it; throws std::runtime_error after `limit` or when the
  // driver ended without such an event.
  nlohmann::json wait_for(const std::function<bool(const nlohmann::json&)>& predicate,
                          std::chrono::milliseconds limit = std::chrono::seconds(60));

  // Waits for the driver's end: its exit code, or minus the signal that killed it.
  int wait();

  // Writes a line to the driver's stdin; close_stdin() ends it.
  void write_line(const std::string& line);
  void close_stdin();

  [[nodiscard]] std::vector<nlohmann::json> events() const;
  [[nodiscard]] std::string output() const;  // stdout and stderr until now
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  TemporaryFolder folder_;
  pid_t pid_ = -1;
  int stdin_fd_ = -1;
  bool waited_ = false;
  int exit_code_ = 0;
};

bool process_exists(pid_t pid);
// Like process_exists, but false for a zombie.
bool process_runs(pid_t pid);

}  // namespace cp_pool::test
