// Runs cases on fake workers inside the test process, and sees what they leave behind.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "driver/events.h"
#include "driver/run.h"

namespace cp_pool::driver_test {

// Keeps every event.
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
  // By case, in list order: "pass", "crash", ..
  [[nodiscard]] std::vector<std::string> outcomes() const;
  [[nodiscard]] const CaseFinished& finished(std::size_t index) const;
  [[nodiscard]] std::vector<std::string> retirements() const;  // reasons, in order

  std::vector<Event> events;
  int ticks = 0;
  std::function<void(const Event&)> on_each;
};

// A case whose model tells the fake worker what to do (fake_worker/main.cpp).
NamedCase fake_case(const std::string& model, int world_size = 2);
std::vector<NamedCase> fake_cases(const std::vector<std::string>& models, int world_size = 2);

// The fake worker with these options; generous limits, so that a loaded machine fails no test, but a short grace. Where
// the environment names the script CP_POOL_TEST_FORK_SERVER, ranks come from that fork server and then execute it.
RunConfig fake_config(std::vector<std::string> options = {});

RunFinished run(const std::vector<NamedCase>& cases, const RunConfig& config, Recorder& recorder);

// Descriptors of this process.
std::size_t open_descriptors();

// Living processes that descend from this one, or that carry the mark which this test process puts in its
// environment; each as "pid (state)".
std::vector<std::string> processes_left();

double ms_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to);

// Waits in a thread of its own until the log has the text, then calls the function.
std::jthread when_logged(const std::filesystem::path& log, const std::string& text, const std::function<void()>& then);

// A file that is removed at the end.
class TemporaryPath {
 public:
  explicit TemporaryPath(const std::string& name);
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;
  ~TemporaryPath();
  [[nodiscard]] const std::filesystem::path& get() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace cp_pool::driver_test
