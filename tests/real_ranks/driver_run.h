// A run of the real cp-pool with real ranks, seen from outside: its exit code and its event stream.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include <nlohmann/json.hpp>

namespace cp_pool::test {

// The programs under test: beside the test itself if it was carried to another machine with them, else where they were
// built.
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
  [[nodiscard]] std::string output() const;  // stdout and stderr so far
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  std::filesystem::path folder_;
  pid_t pid_ = -1;
  int stdin_fd_ = -1;
  bool waited_ = false;
  int exit_code_ = 0;
};

// The events of one type.
std::vector<nlohmann::json> of_type(const std::vector<nlohmann::json>& events, const std::string& type);

bool process_exists(pid_t pid);
// As process_exists, but not for one that has ended and waits for its parent to notice.
bool process_runs(pid_t pid);

}  // namespace cp_pool::test
