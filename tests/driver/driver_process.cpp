// A driver in a process of its own, for tests that kill or stop it: driver_process MODEL [options of the fake worker].
// With --triage among the options a case has half a second, and a failure is replayed.
// Runs one fake case on four ranks and prints a line on stdout for each event: "pid N" for every rank, "spawned",
// "started" when the case has been sent, "in PHASE", "paused", "retired REASON", "finished OUTCOME, N attempts".
#include <cstdio>

#include "tests/driver/harness.h"

int main(int argc, char** argv) {
  using namespace cp_pool;
  driver_test::Recorder recorder;
  recorder.on_each = [](const Event& event) {
    if (const auto* spawned = std::get_if<PoolSpawned>(&event)) {
      for (const int pid : spawned->pids) std::printf("pid %d\n", pid);
      std::puts("spawned");
    }
    if (std::holds_alternative<CaseStarted>(event)) std::puts("started");
    if (const auto* progress = std::get_if<CaseProgress>(&event)) std::printf("in %s\n", progress->phase.c_str());
    if (std::holds_alternative<RunPaused>(event)) std::puts("paused");
    if (const auto* retired = std::get_if<PoolRetired>(&event)) {
      std::printf("retired %s\n", std::string{to_string(retired->reason)}.c_str());
    }
    if (const auto* finished = std::get_if<CaseFinished>(&event)) {
      std::printf("finished %s, %d attempts\n", std::string{to_string(finished->outcome)}.c_str(), finished->attempts);
    }
    std::fflush(stdout);
  };
  const std::string model = argc > 1 ? argv[1] : "pass";
  std::vector<std::string> options(argv + (argc > 1 ? 2 : 1), argv + argc);
  const bool triage = std::erase(options, "--triage") > 0;
  RunConfig config = driver_test::fake_config(options);
  config.triage = triage;
  if (triage) config.timeout = std::chrono::milliseconds(500);
  return driver_test::run(driver_test::fake_cases({model}, 4), config, recorder).exit_code;
}
