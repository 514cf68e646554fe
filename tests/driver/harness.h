// Runs the driver inside the test process on fake workers, and finds the processes and descriptors that it leaves
// behind.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cases/testing/temporary_folder.h"
#include "driver/core/events.h"
#include "driver/core/run.h"

namespace cp_pool::driver_test {

// An event sink that keeps every event.
class Recorder : public EventSink {
 public:
  void on_event(const Event& event) override {
    events.push_back(event);
    if (on_each) on_each(event);
  }
  void on_tick() override { ++ticks; }

  template <typename T>
  [[nodiscard]] std::vector<T> all() const {
    std::vector<T> out;
    for (const Event& event : events) {
      if (const auto* e = std::get_if<T>(&event)) out.push_back(*e);
    }
    return out;
  }
  // Calls the function at each event of its type from now on.
  template <typename E>
  void on(const std::function<void(const E&)>& then) {
    on_each = [then](const Event& event) {
      if (const auto* e = std::get_if<E>(&event)) then(*e);
    };
  }
  // The outcome of each case, in list order: "pass", "crash", ..
  [[nodiscard]] std::vector<std::string> outcomes() const;
  // The event of the case with this index. Throws std::out_of_range if the case has not finished.
  [[nodiscard]] const CaseFinished& finished(std::size_t index) const;
  // The event of the end of the run.
  [[nodiscard]] RunFinished end() const { return all<RunFinished>().at(0); }
  // Why each pool was retired, in the order of the events.
  [[nodiscard]] std::vector<std::string> retirements() const;

  std::vector<Event> events;
  int ticks = 0;
  std::function<void(const Event&)> on_each;
};

// A case whose model tells the fake worker what to do (see fake_worker/main.cpp).
Item fake_case(const std::string& model, int world_size = 2);
std::vector<Item> fake_cases(const std::vector<std::string>& models, int world_size = 2);

// A configuration that runs the fake worker with these options. Its time limits are generous, so that no test fails on
// a loaded machine; its grace is short. If CP_POOL_TEST_FORK_SERVER names a script, that fork server forks the ranks,
// which then execute the fake worker.
RunConfig fake_config(std::vector<std::string> options = {});

RunFinished run(const std::vector<Item>& cases, const RunConfig& config, Recorder& recorder);
// Runs the cases. Returns what was recorded.
Recorder run(const std::vector<Item>& cases, const RunConfig& config = fake_config());

// Measures a run of one case that passes with this configuration. Limits that have to leave time for the start of a
// pool are multiples of it, so that they hold on a slow machine and cost little on a fast one.
std::chrono::milliseconds time_of_a_pass(const RunConfig& config);

// The number of open file descriptors of this process.
std::size_t open_descriptors();

// The living processes that descend from this one, each as "pid (state)", and those that have the mark of this test
// process in their environment, each as "pid (marked)".
std::vector<std::string> processes_left();

double ms_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to);

// Starts a thread that waits until the log contains the text and then calls the function.
std::jthread when_logged(const std::filesystem::path& log, const std::string& text, const std::function<void()>& then);

// The path of a temporary file or folder, which the test may create and the destructor removes.
class TemporaryPath {
 public:
  explicit TemporaryPath(const std::string& name) : path_(folder_ / name) {}
  [[nodiscard]] const std::filesystem::path& get() const { return path_; }

 private:
  test::TemporaryFolder folder_;
  std::filesystem::path path_;
};

}  // namespace cp_pool::driver_test
