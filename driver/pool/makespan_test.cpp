// Tests how well the scheduler uses the slots, under a virtual clock.
#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "driver/pool/testing/quick_durations.h"
#include "driver/pool/testing/virtual_fleet.h"

namespace cp_pool::fleet_test {
namespace {

constexpr Seconds kStartOfARank{1.5};

// Draws cases of 1, 2, 4 and 8 ranks with equal probability. Each takes as long as some case of so many ranks did in a
// real run.
std::vector<VirtualCase> draw_cases(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<VirtualCase> out;
  out.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int ranks = 1 << (random() % 4);
    const std::vector<int>& durations = kQuickDurations.at(ranks);
    const int ms = durations[random() % durations.size()];
    out.push_back({.ranks = ranks, .time = std::chrono::milliseconds{ms}, .group = random() % 40});
  }
  return out;
}

// A lower bound for every schedule: the longest case, or all work spread evenly over the slots, on each of which one
// rank starts.
Seconds least_makespan(const std::vector<VirtualCase>& cases, int slots) {
  Seconds longest{0};
  Seconds work = slots * kStartOfARank;
  for (const VirtualCase& c : cases) {
    longest = std::max(longest, c.time);
    work += c.time * std::min(c.ranks, slots);
  }
  return std::max(longest, work / slots);
}

class Makespan : public testing::TestWithParam<int> {};

TEST_P(Makespan, IsWithinFivePercentOfTheLeast) {
  const int slots = GetParam();
  for (const unsigned seed : {1U, 2U, 3U}) {
    const std::vector<VirtualCase> cases = draw_cases(10000, seed);
    VirtualFleet fleet;
    fleet.settings.slots = slots;
    // Ranks that share a slot start one after another.
    fleet.start_time = [](int ranks, int held) { return kStartOfARank * ranks / held; };
    const VirtualRun run = run_virtually(cases, fleet);
    ASSERT_EQ(run.error, "");
    const Seconds least = least_makespan(cases, slots);
    EXPECT_LE(run.makespan / least, 1.05);
    fmt::print("{} slots: {:.1f} s, {:.2f} % above the least; {} pools started\n", slots, run.makespan.count(),
               100 * (run.makespan / least - 1), run.starts);
  }
}

INSTANTIATE_TEST_SUITE_P(Slots, Makespan, testing::Values(1, 2, 4, 8, 64));

}  // namespace
}  // namespace cp_pool::fleet_test
