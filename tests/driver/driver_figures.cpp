// Measures what the driver itself costs, with a worker that computes nothing: driver_figures [CASES [WORKER
// [ARGUMENTS]]]. The pings go to WORKER, by default the fake worker.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <sys/resource.h>
#include <utility>

#include <asio/io_context.hpp>
#include <fmt/format.h>

#include "driver/ranks/worker_group.h"
#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

double cpu_ms() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

double percentile(std::vector<double> values, double p) {
  std::ranges::sort(values);
  return values.at(static_cast<std::size_t>(p * static_cast<double>(values.size() - 1)));
}

// An event sink that keeps only the times, so that the figures do not include the cost of recording events.
class Times : public EventSink {
 public:
  void on_event(const Event& event) override {
    if (const auto* finished = std::get_if<CaseFinished>(&event)) case_ms.push_back(finished->duration_ms);
  }
  std::vector<double> case_ms;
};

// Runs `count` cases of one rank on `pools` pools side by side and prints what they cost.
void print_noop_cases(std::size_t count, int pools) {
  const std::vector<Item> cases(count, fake_case("pass", 1));
  Times times;
  RunConfig config = fake_config();
  config.slots = pools;
  const double cpu_before = cpu_ms();
  const RunFinished finished = run_cases(cases, config, {}, times).finished;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "{} no-op cases on {}: wall {:.2f} s, driver CPU {:.3f} ms a case, round trip p50 {:.3f} ms p95 {:.3f} ms, ",
      count, pools == 1 ? "one pool" : fmt::format("{} pools", pools), finished.duration_ms / 1e3,
      (cpu_ms() - cpu_before) / static_cast<double>(count), percentile(times.case_ms, 0.5),
      percentile(times.case_ms, 0.95));
  fmt::print("largest RSS {:.1f} MiB\n", static_cast<double>(usage.ru_maxrss) / 1024);
}

// Prints the time from the death of a rank in the middle of a case to the next case's result on a fresh pool.
void print_kill_to_next_result() {
  std::vector<double> ms;
  for (int i = 0; i < 20; ++i) {
    Recorder recorder;
    std::chrono::steady_clock::time_point sent;
    recorder.on_each = [&](const Event& event) {
      const auto* started = std::get_if<CaseStarted>(&event);
      if (started != nullptr && started->index == 0) sent = std::chrono::steady_clock::now();
      const auto* finished = std::get_if<CaseFinished>(&event);
      if (finished == nullptr || finished->index != 1) return;
      ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - sent).count());
    };
    run(fake_cases({i % 2 == 0 ? "sigkill" : "sigkill@1", "pass"}), fake_config(), recorder);
  }
  fmt::print("kill to the next case's result, 2 fake ranks: p50 {:.1f} ms, max {:.1f} ms\n", percentile(ms, 0.5),
             percentile(ms, 1));
}

// A group of two ranks that is pinged through the pipes and the event loop of the driver.
class PingedGroup {
 public:
  explicit PingedGroup(std::vector<std::string> command) {
    run_.worker_command = std::move(command);
    group_->spawn();
    wait_for<protocol::ReadyEvent>();
  }

  double ping_ms(bool all) {
    const auto start = std::chrono::steady_clock::now();
    group_->send(protocol::PingRequest{++seq_, all});
    wait_for<protocol::PongEvent>();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  template <typename Wanted>
  void wait_for() {
    for (;;) {
      while (const auto incoming = group_->take()) {
        if (std::holds_alternative<Wanted>(std::get<protocol::Event>(*incoming))) return;
      }
      if (!group_->facts().ends.empty()) throw std::runtime_error("the worker ended");
      io_.run_one();
    }
  }

  asio::io_context io_{1};
  RunConfig run_;
  std::unique_ptr<WorkerGroup> group_ =
      make_local_group(io_, {.run = &run_, .world_size = 2, .tag = "driver-figures"}, nullptr, nullptr, [] {});
  std::int64_t seq_ = 0;
};

void print_pings(const std::vector<std::string>& worker) {
  constexpr std::size_t kPings = 2000;
  PingedGroup group(worker);
  for (const bool all : {false, true}) {
    std::vector<double> ms;
    ms.reserve(kPings);
    while (ms.size() < kPings) ms.push_back(group.ping_ms(all));
    fmt::print("ping{} of 2 ranks: p50 {:.3f} ms, p95 {:.3f} ms, max {:.3f} ms\n", all ? " to all" : "",
               percentile(ms, 0.5), percentile(ms, 0.95), percentile(ms, 1));
  }
}

}  // namespace
}  // namespace cp_pool::driver_test

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::max(1, std::atoi(argv[1])) : 10000;
  for (const int pools : {1, 4}) cp_pool::driver_test::print_noop_cases(static_cast<std::size_t>(count), pools);
  cp_pool::driver_test::print_kill_to_next_result();
  const std::vector<std::string> worker(argv + std::min(argc, 2), argv + argc);
  cp_pool::driver_test::print_pings(worker.empty() ? cp_pool::driver_test::fake_config().worker_command : worker);
}
