#include "driver/pool/scheduler.h"

#include <gmock/gmock.h>

#include "driver/pool/testing/decisions.h"
#include "driver/pool/testing/virtual_fleet.h"

namespace cp_pool::fleet_test {
namespace {

using namespace ::testing;

// `count` cases of so many ranks and one second each.
std::vector<VirtualCase> cases_of(int ranks, std::size_t count) {
  return std::vector<VirtualCase>(count, {.ranks = ranks, .time = Seconds{1}});
}

std::vector<VirtualCase> joined(std::vector<VirtualCase> first, const std::vector<VirtualCase>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

VirtualRun run_on(int slots, const std::vector<VirtualCase>& cases, VirtualFleet fleet = {}) {
  fleet.settings.slots = slots;
  VirtualRun run = run_virtually(cases, fleet);
  EXPECT_EQ(run.error, "");
  return run;
}

TEST(Scheduler, StartsTheFirstPoolOfEachKeyThatFitsTheLargestFirst) {
  Scheduler scheduler({.slots = 7});
  for (const int ranks : {1, 4, 2, 3}) scheduler.case_added(scheduler.add_key(ranks), {});
  const auto starts = all<StartPool>(scheduler.decide(Seconds{0}));
  ASSERT_THAT(starts, SizeIs(2));
  EXPECT_EQ(starts[0].key, 1);
  EXPECT_THAT(starts[0].slots, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(starts[1].key, 3);
  EXPECT_THAT(starts[1].slots, ElementsAre(4, 5, 6));
}

// In a service, keys are added and removed with clients.
TEST(Scheduler, ForgetsAKeyThatIsGone) {
  Scheduler scheduler({.slots = 4});
  EXPECT_EQ(scheduler.add_key(1), 0);
  scheduler.remove_key(0);
  EXPECT_EQ(scheduler.add_key(4), 1);
  scheduler.case_added(1, {});
  EXPECT_THAT(all<StartPool>(scheduler.decide(Seconds{0})).at(0).slots, SizeIs(4));
}

TEST(Scheduler, GivesAPoolSlotsThatAreNearEachOther) {
  const SlotDistances crossed{{0, 1, 0, 1}, {1, 0, 1, 0}, {0, 1, 0, 1}, {1, 0, 1, 0}};
  Scheduler scheduler({.slots = 4, .distances = crossed});
  scheduler.case_added(scheduler.add_key(2), {});
  EXPECT_THAT(all<StartPool>(scheduler.decide(Seconds{0})).at(0).slots, ElementsAre(0, 2));
}

TEST(Scheduler, LetsAPoolOfMoreRanksThanSlotsShareThemAll) {
  Scheduler scheduler({.slots = 3});
  scheduler.case_added(scheduler.add_key(8), {});
  EXPECT_THAT(all<StartPool>(scheduler.decide(Seconds{0})).at(0).slots, ElementsAre(0, 1, 2));
}

TEST(Scheduler, StartsAsManyPoolsOfAKeyAsThereIsRoomForOnceOneHasProvedToStart) {
  Scheduler scheduler({.slots = 8});
  const int key = scheduler.add_key(2);
  for (std::size_t i = 0; i < 1000; ++i) scheduler.case_added(key, {i, 0});
  ASSERT_THAT(all<StartPool>(scheduler.decide(Seconds{0})), SizeIs(1));
  EXPECT_THAT(scheduler.decide(Seconds{0.5}), IsEmpty());
  scheduler.pool_ready(1, Seconds{1});
  const auto decisions = scheduler.decide(Seconds{1});
  EXPECT_EQ(all<SendCase>(decisions).at(0).index, 0U);
  EXPECT_THAT(all<StartPool>(decisions), SizeIs(3));
}

TEST(Scheduler, StartsNoFurtherPoolForWhatIsOverBeforeItIsReady) {
  VirtualFleet fleet;
  fleet.start_time = [](int, int) { return Seconds{100}; };
  EXPECT_EQ(run_on(8, cases_of(2, 100), fleet).starts, 1);
  EXPECT_EQ(run_on(8, cases_of(2, 1000), fleet).starts, 4);
}

TEST(Scheduler, CountsTheStartOfAPoolThatIsReplacedAsPartOfItsCases) {
  VirtualFleet fleet;
  fleet.start_time = [](int, int) { return Seconds{100}; };
  fleet.settings.cases_of_a_pool = 1;
  EXPECT_EQ(run_on(8, cases_of(2, 40), fleet).most_pools_of_a_key, 4);
}

TEST(Scheduler, GivesSlotsThatAreFreeWhileTheLastCasesRunToTheNextKey) {
  std::vector<VirtualCase> cases = joined(cases_of(2, 100), cases_of(3, 10));
  cases[99].time = Seconds{1000};
  const VirtualRun run = run_on(4, cases);
  EXPECT_LT(run.makespan, Seconds{1100}) << "the ten cases did not wait for the long one";
}

TEST(Scheduler, StartsAnotherPoolBesideOneThatIsHeldUp) {
  std::vector<VirtualCase> cases = cases_of(2, 3);
  cases[1].time = Seconds{1000};
  const VirtualRun run = run_on(4, cases);
  EXPECT_EQ(run.starts, 2);
  EXPECT_LT(run.makespan, Seconds{1010});
  EXPECT_NE(run.pool_of.at(2), run.pool_of.at(1));
}

TEST(Scheduler, KeepsIdlePoolsWhileNobodyNeedsTheirSlots) {
  VirtualFleet fleet;
  fleet.known_at_first = 1;  // each further case is added when the one before it has ended
  const std::vector<VirtualCase> cases = joined(joined(cases_of(1, 1), cases_of(2, 1)), cases_of(1, 1));
  const VirtualRun run = run_on(3, cases, fleet);
  EXPECT_EQ(run.starts, 2);
}

TEST(Scheduler, GivesUpTheIdlePoolsThatWasteLeast) {
  Scheduler scheduler({.slots = 6});
  std::vector<int> keys;
  for (const int ranks : {3, 2, 1}) keys.push_back(scheduler.add_key(ranks));
  double now = 0;
  for (std::size_t i = 0; i < 3; ++i) {  // pools 1, 2 and 3 become idle
    scheduler.case_added(keys[i], {i, 0});
    const int pool = all<StartPool>(scheduler.decide(Seconds{++now})).at(0).pool;
    scheduler.pool_ready(pool, Seconds{++now});
    scheduler.decide(Seconds{now});
    scheduler.case_ended(pool, Seconds{++now});
  }
  scheduler.case_added(scheduler.add_key(2), {3, 0});
  const auto decisions = scheduler.decide(Seconds{++now});
  ASSERT_THAT(all<RetirePool>(decisions), SizeIs(1));
  EXPECT_EQ(all<RetirePool>(decisions)[0].pool, 2);
  ASSERT_THAT(all<StartPool>(decisions), SizeIs(1)) << "an idle pool gives its slots back at once";
  EXPECT_THAT(all<StartPool>(decisions)[0].slots, ElementsAre(3, 4));
  scheduler.pool_gone(2);
  EXPECT_THAT(scheduler.decide(Seconds{++now}), IsEmpty());
}

TEST(Scheduler, KeepsWhatBecomesFreeForTheKeyThatWaitsForIt) {
  Scheduler scheduler({.slots = 2});
  const int one = scheduler.add_key(1);
  scheduler.case_added(one, {0, 0});
  scheduler.decide(Seconds{0});
  scheduler.pool_ready(1, Seconds{1});
  scheduler.decide(Seconds{1});
  scheduler.case_ended(1, Seconds{2});
  scheduler.pool_ends(1);  // a rank died in the case; the pool is not gone yet
  scheduler.case_added(scheduler.add_key(2), {1, 0});
  EXPECT_THAT(scheduler.decide(Seconds{3}), IsEmpty());
  scheduler.case_added(one, {2, 0});
  EXPECT_THAT(scheduler.decide(Seconds{4}), IsEmpty()) << "the free slot is kept";
  scheduler.pool_gone(1);
  EXPECT_EQ(all<StartPool>(scheduler.decide(Seconds{5})).at(0).slots.size(), 2U);
}

TEST(Scheduler, GivesWhatARetiredPoolLeavesOverToTheKeyThatWaitsForNoMore) {
  Scheduler scheduler({.slots = 8});
  const std::vector<int> keys{scheduler.add_key(5), scheduler.add_key(3), scheduler.add_key(2)};
  scheduler.case_added(keys[0], {0, 0});
  scheduler.case_added(keys[1], {1, 0});
  scheduler.decide(Seconds{0});
  for (const int pool : {1, 2}) scheduler.pool_ready(pool, Seconds{1});
  scheduler.decide(Seconds{1});
  scheduler.case_ended(2, Seconds{2});
  scheduler.pool_ends(2);  // a rank died in the case; the pool is not gone yet
  scheduler.case_added(keys[1], {2, 0});
  scheduler.case_added(keys[2], {3, 0});
  EXPECT_THAT(scheduler.decide(Seconds{2}), IsEmpty()) << "three slots are kept for the larger key";
  scheduler.case_ended(1, Seconds{3});
  EXPECT_THAT(all<StartPool>(scheduler.decide(Seconds{3})), SizeIs(2)) << "the idle pool held enough for both";
  EXPECT_THAT(scheduler.decide(Seconds{3}), IsEmpty());
}

TEST(Scheduler, RetiresEachPoolWhenNoCaseCanComeForItAnyMoreEvenOneThatStarts) {
  Scheduler scheduler({.slots = 4});
  const int key = scheduler.add_key(2);
  for (std::size_t i = 0; i < 100; ++i) scheduler.case_added(key, {i, 0});
  scheduler.no_more_cases();
  scheduler.decide(Seconds{0});
  scheduler.pool_ready(1, Seconds{1});
  EXPECT_THAT(all<StartPool>(scheduler.decide(Seconds{1})), SizeIs(1));
  EXPECT_THAT(scheduler.drop_cases_of(0, key), SizeIs(99));
  auto retired = all<RetirePool>(scheduler.decide(Seconds{2}));
  ASSERT_THAT(retired, SizeIs(1)) << "the other one has a case";
  EXPECT_EQ(retired[0].pool, 2);
  scheduler.pool_ready(2, Seconds{3});
  EXPECT_THAT(scheduler.decide(Seconds{3}), IsEmpty());
  scheduler.case_ended(1, Seconds{4});
  EXPECT_THAT(all<RetirePool>(scheduler.decide(Seconds{4})), SizeIs(1));
}

TEST(Scheduler, StartsAPoolInThePlaceOfALostOneAndSendsWhatHadNotStartedFirst) {
  VirtualFleet fleet;
  fleet.fate = [](std::size_t index) { return index == 2 ? Fate::returns_unstarted : Fate::ends; };
  const VirtualRun run = run_on(2, cases_of(2, 5), fleet);
  EXPECT_THAT(run.order, ElementsAre(0, 1, 2, 2, 3, 4));
  EXPECT_EQ(run.starts, 2);
}

TEST(Scheduler, ALostPoolCostsNoOtherOneItsCases) {
  VirtualFleet fleet;
  fleet.fate = [](std::size_t index) { return index % 50 == 0 ? Fate::loses_its_pool : Fate::ends; };
  const VirtualRun run = run_on(8, cases_of(2, 400), fleet);
  EXPECT_LE(run.starts, 4 + 8) << "each of the 8 that are lost is replaced at most";
  EXPECT_THAT(run.times_sent, testing::Each(1));
}

TEST(Scheduler, WithoutALimitKeepsAPoolOfEveryKey) {
  VirtualFleet fleet;
  fleet.known_at_first = 1;
  std::vector<VirtualCase> cases;
  for (const int ranks : {8, 2, 8, 4, 2, 1, 8}) cases.push_back({.ranks = ranks});
  const VirtualRun run = run_virtually(cases, fleet);
  EXPECT_EQ(run.error, "");
  EXPECT_EQ(run.starts, 4);
  EXPECT_THAT(run.slots, testing::Each(IsEmpty()));
}

TEST(Scheduler, KeepsGroupsOnAPoolEach) {
  std::vector<VirtualCase> cases = cases_of(1, 400);
  for (std::size_t i = 0; i < cases.size(); ++i) cases[i].group = i / 100;
  VirtualFleet fleet;
  fleet.start_time = [](int, int) { return Seconds{0.01}; };
  const VirtualRun run = run_on(4, cases, fleet);
  int moved = 0;
  for (std::size_t i = 1; i < cases.size(); ++i) {
    moved += cases[i].group == cases[i - 1].group && run.pool_of.at(i) != run.pool_of.at(i - 1) ? 1 : 0;
  }
  EXPECT_LE(moved, 8);
}

// For all sizes, durations and losses: every case ends, no slot is given twice, and nothing is stuck.
TEST(Scheduler, EndsEveryCaseUnderAnyLoad) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const AnyLoad load = draw_load(random);
    const VirtualRun run = run_on(load.slots, load.cases, load.fleet);
    EXPECT_LE(run.most_slots, load.slots);
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace cp_pool::fleet_test
