// Pools that start while others still work on their slots, under a virtual clock. The virtual fleet checks that at most
// one waits for slots, and that each gets its first case when it has all of its slots.
#include <gmock/gmock.h>

#include "driver/pool/testing/decisions.h"
#include "driver/pool/testing/virtual_fleet.h"

namespace cp_pool::fleet_test {
namespace {

using namespace ::testing;

std::vector<VirtualCase> cases_of(const std::vector<int>& ranks, std::size_t count, Seconds time = Seconds{1}) {
  std::vector<VirtualCase> out;
  for (const int each : ranks) out.insert(out.end(), count, {.ranks = each, .time = time});
  return out;
}

VirtualRun run_on(int slots, const std::vector<VirtualCase>& cases, VirtualFleet fleet = {}) {
  fleet.settings.slots = slots;
  fleet.settings.early_starts = true;
  VirtualRun run = run_virtually(cases, fleet);
  EXPECT_EQ(run.error, "");
  return run;
}

// Two keys that need all of four slots. The first has `count` cases and a pool that works on case 0.
class TwoKeys : public testing::Test {
 protected:
  void begin(std::size_t count, bool closed = true) {
    first = scheduler.add_key(4);
    for (std::size_t i = 0; i < count; ++i) scheduler.case_added(first, {i, 0});
    second = scheduler.add_key(3);
    scheduler.case_added(second, {100, 0});
    if (closed) scheduler.no_more_cases();
    scheduler.decide(Seconds{0});
    scheduler.pool_ready(1, Seconds{1});
  }
  Scheduler scheduler{{.slots = 4, .early_starts = true}};
  int first = 0;
  int second = 0;
};

TEST_F(TwoKeys, ThePoolOfTheNextKeyStartsWhileTheFirstWorksAndWaitsForItsSlots) {
  begin(2);
  const auto start = all<StartPool>(scheduler.decide(Seconds{1}));
  ASSERT_THAT(start, SizeIs(1));
  EXPECT_EQ(start[0].key, second);
  EXPECT_TRUE(start[0].early);
  EXPECT_THAT(start[0].slots, SizeIs(3));
  scheduler.pool_ready(2, Seconds{2});
  EXPECT_THAT(scheduler.decide(Seconds{2}), IsEmpty()) << "its slots are not free";
  scheduler.case_ended(1, Seconds{3});
  EXPECT_THAT(all<SendCase>(scheduler.decide(Seconds{3})), SizeIs(1));
  scheduler.case_ended(1, Seconds{4});
  const auto decisions = scheduler.decide(Seconds{4});
  EXPECT_EQ(all<RetirePool>(decisions).at(0).pool, 1);
  EXPECT_EQ(all<SendCase>(decisions).at(0).index, 100U) << "at the moment at which the slots are free";
}

TEST_F(TwoKeys, NoPoolStartsEarlyLongBeforeItsSlotsAreFree) {
  begin(100);
  EXPECT_THAT(all<StartPool>(scheduler.decide(Seconds{1})), SizeIs(0)) << "a case is taken to last 0.1 s, a start 1 s";
  std::vector<int> starts;  // how many cases had ended
  for (int ended = 1; ended < 100; ++ended) {
    scheduler.case_ended(1, Seconds{1 + 0.1 * ended});
    if (!all<StartPool>(scheduler.decide(Seconds{1 + 0.1 * ended})).empty()) starts.push_back(ended);
  }
  EXPECT_THAT(starts, ElementsAre(testing::AllOf(testing::Ge(79), testing::Le(81)))) << "twice a start is left";
}

TEST_F(TwoKeys, AnEarlyStartIsGivenUpIfNoCaseIsLeftForIt) {
  begin(1);
  EXPECT_THAT(all<StartPool>(scheduler.decide(Seconds{1})), SizeIs(1));
  EXPECT_THAT(scheduler.drop_cases_of(0, second), SizeIs(1));
  EXPECT_EQ(all<RetirePool>(scheduler.decide(Seconds{1.5})).at(0).pool, 2);
  scheduler.case_ended(1, Seconds{2});
  EXPECT_EQ(all<RetirePool>(scheduler.decide(Seconds{2})).at(0).pool, 1);
}

TEST_F(TwoKeys, ALostPoolLeavesItsSlotsToThePoolThatWaitsForThem) {
  begin(5);
  scheduler.decide(Seconds{1});
  scheduler.pool_ready(2, Seconds{2});
  scheduler.case_ended(1, Seconds{3});
  scheduler.pool_ends(1);
  EXPECT_THAT(all<SendCase>(scheduler.decide(Seconds{3})), IsEmpty()) << "the lost pool still holds its slots";
  scheduler.pool_gone(1);
  const auto decisions = scheduler.decide(Seconds{3.5});
  EXPECT_EQ(all<SendCase>(decisions).at(0).index, 100U);
  const auto next = all<StartPool>(decisions);
  ASSERT_THAT(next, SizeIs(1));
  EXPECT_EQ(next[0].key, first);
  EXPECT_TRUE(next[0].early);
}

TEST_F(TwoKeys, AnEarlyStartThatFailsIsTriedAgain) {
  begin(5);
  scheduler.decide(Seconds{1});
  scheduler.pool_ends(2);
  EXPECT_THAT(scheduler.decide(Seconds{1.2}), SizeIs(1)) << "another may start while the lost one ends";
  scheduler.pool_gone(2);
  EXPECT_THAT(scheduler.decide(Seconds{1.3}), IsEmpty());
}

TEST(EarlyStarts, MakeARunOfManyKeysShorterByTheirStarts) {
  // Like quick on four GPUs: eight world sizes, of which five need all GPUs.
  const std::vector<VirtualCase> cases = cases_of({1, 2, 3, 4, 5, 6, 7, 8}, 5, Seconds{0.5});
  VirtualFleet fleet;
  fleet.start_time = [](int, int) { return Seconds{2}; };
  fleet.settings.slots = 4;
  const VirtualRun late = run_virtually(cases, fleet);
  ASSERT_EQ(late.error, "");
  const VirtualRun early = run_on(4, cases, fleet);
  EXPECT_LE(early.starts, late.starts);
  EXPECT_LE(early.makespan, late.makespan - 5 * Seconds{2});
}

TEST(EarlyStarts, AreNotMadeUnlessTheyAreAskedForNorBeforeAPoolHasProvedToStart) {
  VirtualFleet fleet;
  fleet.settings.slots = 4;
  EXPECT_EQ(run_virtually(cases_of({4, 3, 2}, 3), fleet).early_starts, 0);
  Scheduler scheduler({.slots = 2, .early_starts = true});
  for (const int ranks : {2, 1}) scheduler.case_added(scheduler.add_key(ranks), {});
  EXPECT_THAT(all<StartPool>(scheduler.decide(Seconds{0})), SizeIs(1));
}

TEST_F(TwoKeys, AnIdlePoolYieldsToThePoolThatWaitsForItsSlots) {
  begin(1, false);
  scheduler.decide(Seconds{1});
  scheduler.pool_ready(2, Seconds{2});
  scheduler.case_ended(1, Seconds{3});
  const auto decisions = scheduler.decide(Seconds{3});
  EXPECT_EQ(all<RetirePool>(decisions).at(0).pool, 1) << "though another case may come for it";
  EXPECT_EQ(all<SendCase>(decisions).at(0).index, 100U);
}

// A key of one slot uses the slot that is free while a larger key waits for it and others.
TEST(EarlyStarts, ComeAfterThoseThatHaveTheirSlots) {
  Scheduler scheduler({.slots = 4, .early_starts = true});
  for (const int ranks : {3, 2, 1})
    scheduler.case_added(scheduler.add_key(ranks), {static_cast<std::size_t>(ranks), 0});
  scheduler.decide(Seconds{0});
  scheduler.pool_ready(1, Seconds{1});
  const auto starts = all<StartPool>(scheduler.decide(Seconds{1}));
  EXPECT_THAT(starts, SizeIs(1)) << "the pool of one rank has begun at 0";
  EXPECT_EQ(starts[0].slots.size(), 2U);
}

// For all sizes, durations and losses: every case ends, no slot is used twice, and nothing is stuck.
TEST(EarlyStarts, EndEveryCaseUnderAnyLoad) {
  int early = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    AnyLoad load = draw_load(random);
    load.fleet.settings.spare = random() % 2 == 1;
    const unsigned clients = 1 + random() % 3;
    for (VirtualCase& c : load.cases) c.client = static_cast<int>(random() % clients);
    const VirtualRun run = run_on(load.slots, load.cases, load.fleet);
    EXPECT_LE(run.most_slots, load.slots);
    early += run.early_starts;
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(early, 300);
}

}  // namespace
}  // namespace cp_pool::fleet_test
