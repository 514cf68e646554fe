// Measures how full real processes keep the slots. The fake workers sleep as long as the cases of a real run took.
#include <algorithm>
#include <cstddef>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "driver/pool/testing/quick_durations.h"
#include "driver/testing/attention.h"
#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

constexpr int kSlots = 8;
constexpr std::size_t kCases = 2000;

std::vector<Item> sleeping_cases() {
  std::mt19937 random(1);
  std::vector<Item> out;
  out.reserve(kCases);
  for (std::size_t i = 0; i < kCases; ++i) {
    const int ranks = 1 << (random() % 4);
    const std::vector<int>& durations = fleet_test::kQuickDurations.at(ranks);
    out.push_back(fake_case(fmt::format("sleeps_{}", durations[random() % durations.size()]), ranks));
    test::attention(out.back().payload).suite = fmt::format("group {}", random() % 40);
  }
  return out;
}

// Adds up the time for which cases needed slots.
class SlotTime : public EventSink {
 public:
  void on_event(const Event& event) override {
    if (const auto* finished = std::get_if<CaseFinished>(&event)) {
      work_ms += finished->duration_ms * std::min(finished->payload->ranks(), kSlots);
      longest_ms = std::max(longest_ms, finished->duration_ms);
      passed += finished->outcome == CaseOutcome::pass ? 1 : 0;
    }
    if (const auto* ready = std::get_if<PoolReady>(&event)) {
      ++pools;
      start_ms = std::max(start_ms, ready->spawn_to_ready_ms);
    }
  }
  double work_ms = 0;
  double longest_ms = 0;
  double start_ms = 0;  // the start of the slowest pool
  std::size_t passed = 0;
  int pools = 0;
};

// What this machine takes from the end of a case to the start of the next one where nothing is scheduled: cases that
// need all slots, one after the other on one pool.
double gap_between_cases(const RunConfig& config) {
  constexpr std::size_t kInARow = 100;
  SlotTime seen;
  const std::vector<Item> cases(kInARow, fake_case("sleeps_20", kSlots));
  const RunFinished finished = run_cases(cases, config, {}, seen).finished;
  EXPECT_EQ(seen.passed, kInARow);
  return std::max(0.0, finished.duration_ms - seen.start_ms - seen.work_ms / kSlots) / kInARow;
}

TEST(FleetLoad, KeepsEightSlotsFullWithinTenPercent) {
  RunConfig config = fake_config();
  config.slots = kSlots;
  const double gap_ms = gap_between_cases(config);
  const std::vector<Item> cases = sleeping_cases();
  double slots_used = 0;  // by all cases
  for (const Item& named : cases) slots_used += std::min(named.payload->ranks(), kSlots);
  SlotTime seen;
  const RunFinished finished = run_cases(cases, config, {}, seen).finished;
  EXPECT_EQ(seen.passed, kCases);
  const double least_ms = std::max(seen.longest_ms, seen.work_ms / kSlots + seen.start_ms);
  EXPECT_LE(finished.duration_ms, 1.1 * least_ms + gap_ms * slots_used / kSlots) << gap_ms << " ms between two cases";
  fmt::print("{:.1f} s, {:.1f} % above the least; {} pools; driver CPU {:.3f} ms a case\n", finished.duration_ms / 1e3,
             100 * (finished.duration_ms / least_ms - 1), seen.pools,
             finished.driver_cpu_ms / static_cast<double>(kCases));
}

}  // namespace
}  // namespace cp_pool::driver_test
