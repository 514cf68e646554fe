// Tests of pools without a case: how long they stay, which of them are kept as spares, and which may run no more cases.
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/pool/testing/decisions.h"
#include "driver/pool/testing/virtual_fleet.h"

namespace cp_pool::fleet_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;
using testing::SizeIs;

// A fleet with one key of two ranks. Its pool, number 1, was ready after 1 s and ran a case until 2 s. If a spare is
// wanted, it is pool 2 and still starting.
class IdlePools : public testing::Test {
 protected:
  void begin(const FleetSettings& settings) {
    scheduler_.emplace(settings);
    scheduler_->add_key(2);
    add_case();
    decide(0);
    scheduler_->pool_ready(1, Seconds{1});
    const auto decisions = decide(1);
    ASSERT_THAT(all<SendCase>(decisions), SizeIs(1));
    ASSERT_THAT(all<StartPool>(decisions), SizeIs(settings.spare ? 1 : 0));
    scheduler_->case_ended(1, Seconds{2});
  }

  void add_case(int key = 0) { scheduler_->case_added(key, {cases_++, 0}); }
  std::vector<Decision> decide(double now) { return scheduler_->decide(Seconds{now}); }
  // The pools that decide() starts at that time.
  std::vector<int> started(double now) {
    std::vector<int> out;
    for (const StartPool& start : all<StartPool>(decide(now))) out.push_back(start.pool);
    return out;
  }
  std::vector<int> retired(double now) {
    std::vector<int> out;
    for (const RetirePool& retire : all<RetirePool>(decide(now))) out.push_back(retire.pool);
    return out;
  }

  std::optional<Scheduler> scheduler_;
  std::size_t cases_ = 0;
};

TEST_F(IdlePools, StayForEverWithoutATime) {
  begin({.slots = 4});
  EXPECT_THAT(decide(1e6), IsEmpty());
  EXPECT_EQ(scheduler_->look_again_at(Seconds{1e6}), std::nullopt);
}

TEST_F(IdlePools, AreRetiredWhenTheyHadNothingToDoForTheTime) {
  begin({.slots = 4, .idle_time = Seconds{60}});
  EXPECT_THAT(decide(2), IsEmpty());
  EXPECT_THAT(scheduler_->look_again_at(Seconds{2}), Optional(Seconds{62}));
  EXPECT_THAT(decide(61.9), IsEmpty());
  EXPECT_THAT(retired(62), ElementsAre(1));
  EXPECT_EQ(scheduler_->look_again_at(Seconds{62}), std::nullopt);
}

TEST_F(IdlePools, AreRetiredWithoutALimitOfSlotsToo) {
  begin({.idle_time = Seconds{60}});
  EXPECT_THAT(decide(2), IsEmpty());
  EXPECT_THAT(scheduler_->look_again_at(Seconds{2}), Optional(Seconds{62}));
  EXPECT_THAT(retired(62), ElementsAre(1));
}

TEST_F(IdlePools, AreNotRetiredForTheTimeThatTheyWorked) {
  begin({.slots = 4, .idle_time = Seconds{60}});
  add_case();
  decide(2);
  scheduler_->case_ended(1, Seconds{1000});
  add_case();
  EXPECT_THAT(all<SendCase>(decide(2000)), SizeIs(1)) << "a case that comes in time, however late it is noticed";
}

TEST_F(IdlePools, RetireWhenMemoryIsShortAndOneThatHasACaseDoesNot) {
  begin({.slots = 4});
  EXPECT_THAT(scheduler_->idle_pools(), ElementsAre(1));
  add_case();
  scheduler_->retire_idle_pools();
  EXPECT_THAT(all<SendCase>(decide(3)), SizeIs(1)) << "a case waited for it";
  EXPECT_THAT(scheduler_->idle_pools(), IsEmpty());
  scheduler_->retire_idle_pools();
  scheduler_->case_ended(1, Seconds{4});
  EXPECT_THAT(decide(4), IsEmpty()) << "it was not idle";
  scheduler_->retire_idle_pools();
  EXPECT_THAT(scheduler_->idle_pools(), IsEmpty());
  EXPECT_THAT(retired(5), ElementsAre(1));
  add_case();
  EXPECT_THAT(started(6), ElementsAre(2));
}

TEST_F(IdlePools, AreReplacedWhenTheyAreOutdatedAndCasesWait) {
  begin({.slots = 4});
  scheduler_->outdate_pool(1);
  EXPECT_THAT(scheduler_->idle_pools(), IsEmpty());
  add_case();
  EXPECT_EQ(scheduler_->next_of(1), std::nullopt);
  const auto decisions = decide(3);
  EXPECT_THAT(all<SendCase>(decisions), IsEmpty());
  EXPECT_THAT(all<RetirePool>(decisions), SizeIs(1));
  ASSERT_THAT(all<StartPool>(decisions), SizeIs(1));
  EXPECT_THAT(all<StartPool>(decisions)[0].slots, ElementsAre(0, 1)) << "it gave its slots back at once";
}

TEST_F(IdlePools, AreNotReplacedWhenTheyAreOutdatedAndNoCaseWaits) {
  begin({.slots = 4});
  scheduler_->outdate_pool(1);
  EXPECT_THAT(retired(3), ElementsAre(1));
  EXPECT_THAT(decide(4), IsEmpty());
}

TEST_F(IdlePools, APoolThatIsOutdatedWhileItWorksEndsItsCaseAndIsReplacedMeanwhile) {
  begin({.slots = 4});
  add_case();
  decide(2);
  scheduler_->case_ended(1, Seconds{2});  // cases turn out to be short, so that a second pool would not pay
  add_case();
  decide(2);
  scheduler_->outdate_pool(1);
  EXPECT_THAT(decide(2.1), IsEmpty()) << "no case waits";
  add_case();
  EXPECT_THAT(started(2.2), ElementsAre(2));
  scheduler_->case_ended(1, Seconds{5});
  const auto decisions = decide(5);
  EXPECT_THAT(decisions, SizeIs(1));
  EXPECT_THAT(all<RetirePool>(decisions), SizeIs(1));
  scheduler_->pool_ready(2, Seconds{6});
  EXPECT_EQ(all<SendCase>(decide(6)).at(0).pool, 2);
}

TEST_F(IdlePools, APoolThatIsOutdatedWhileItStartsIsRetiredAtOnce) {
  begin({.slots = 2});
  scheduler_->outdate_pool(1);
  add_case();
  ASSERT_THAT(started(3), ElementsAre(2));
  scheduler_->pool_gone(1);
  scheduler_->outdate_pool(2);
  auto decisions = decide(4);
  EXPECT_THAT(all<RetirePool>(decisions), SizeIs(1));
  EXPECT_THAT(all<StartPool>(decisions), IsEmpty()) << "its ranks still hold the slots";
  scheduler_->pool_gone(2);
  EXPECT_THAT(started(5), ElementsAre(3));
}

TEST_F(IdlePools, NoPoolStartsForAHeldClientAndNoneIsLostForIt) {
  begin({.slots = 4});
  scheduler_->hold(0, true);
  add_case();
  EXPECT_THAT(decide(2), IsEmpty());
  scheduler_->add_key(1);
  add_case(1);
  EXPECT_THAT(decide(3), IsEmpty()) << "the key is new, the client held before";
  scheduler_->no_more_cases();
  EXPECT_THAT(decide(4), IsEmpty()) << "the pool may yet have a case";
  scheduler_->hold(0, false);
  const auto decisions = decide(5);
  EXPECT_THAT(all<SendCase>(decisions), SizeIs(1));
  EXPECT_THAT(all<StartPool>(decisions), SizeIs(1));
}

TEST_F(IdlePools, HeldCasesAreDroppedWithTheirKeyAndWithTheirClient) {
  begin({.slots = 4});
  scheduler_->add_key(1);
  scheduler_->hold(0, true);
  add_case(1);
  add_case(0);
  add_case(1);
  add_case(0);
  EXPECT_THAT(scheduler_->drop_cases_of(0, 0), ElementsAre(2, 4));
  add_case(0);
  add_case(1);
  EXPECT_THAT(scheduler_->drop_cases_of(0), ElementsAre(1, 3, 5, 6));
  EXPECT_THAT(decide(2), IsEmpty()) << "no case is left";
  add_case();
  EXPECT_THAT(all<SendCase>(decide(3)), SizeIs(1)) << "the client is held no longer";
  scheduler_->add_key(2);
  add_case(2);
  EXPECT_THAT(started(4), SizeIs(1)) << "nor by a new key";
}

TEST_F(IdlePools, ASpareRunsTheNextCaseAfterACrash) {
  begin({.slots = 4, .spare = true});
  add_case();
  EXPECT_THAT(all<SendCase>(decide(3)), SizeIs(1));
  EXPECT_THAT(decide(4), IsEmpty()) << "the spare is starting";
  scheduler_->pool_ready(2, Seconds{5});
  EXPECT_THAT(decide(5), IsEmpty()) << "it is idle";
  scheduler_->pool_ends(1);  // a crash
  add_case();
  const auto decisions = decide(6);
  ASSERT_THAT(decisions, SizeIs(1)) << "no slot is free for another";
  EXPECT_EQ(all<SendCase>(decisions).at(0).pool, 2) << "it starts at once";
  scheduler_->pool_gone(1);
  EXPECT_THAT(started(7), ElementsAre(3)) << "there is a spare again";
}

// Number of pools that start while the only pool of a key of two ranks runs a case.
std::size_t spares_beside_a_working_pool(const FleetSettings& settings, int ranks_that_wait, std::size_t cases,
                                         bool closed) {
  Scheduler scheduler(settings);
  const int key = scheduler.add_key(2);
  for (std::size_t i = 0; i < cases; ++i) scheduler.case_added(key, {i, 0});
  if (closed) scheduler.no_more_cases();
  scheduler.decide(Seconds{0});
  if (ranks_that_wait > 0) scheduler.case_added(scheduler.add_key(ranks_that_wait), {cases, 0});
  scheduler.pool_ready(1, Seconds{1});
  return all<StartPool>(scheduler.decide(Seconds{1})).size();
}

TEST_F(IdlePools, ASpareStartsOnlyIfSlotsAreFreeThatNobodyWaitsForAndACaseMayCome) {
  EXPECT_EQ(spares_beside_a_working_pool({.slots = 5, .spare = true}, 0, 1, false), 1U);
  EXPECT_EQ(spares_beside_a_working_pool({.slots = 5}, 0, 1, false), 0U) << "not wanted";
  EXPECT_EQ(spares_beside_a_working_pool({.slots = 3, .spare = true}, 0, 1, false), 0U) << "no room";
  EXPECT_EQ(spares_beside_a_working_pool({.spare = true}, 0, 1, false), 0U) << "slots are not counted";
  EXPECT_EQ(spares_beside_a_working_pool({.slots = 5, .spare = true}, 4, 1, false), 0U) << "a key waits for slots";
  EXPECT_EQ(spares_beside_a_working_pool({.slots = 5, .spare = true}, 0, 1, true), 0U) << "it was the last case";
  EXPECT_EQ(spares_beside_a_working_pool({.slots = 5, .spare = true}, 0, 2, true), 1U);
}

TEST_F(IdlePools, ASpareEndsWhenNoCaseCanComeForIt) {
  begin({.slots = 4, .spare = true});
  add_case();
  decide(3);
  scheduler_->no_more_cases();
  EXPECT_THAT(retired(4), ElementsAre(2));
}

TEST_F(IdlePools, ASpareGivesItsSlotsToAKeyThatNeedsThem) {
  begin({.slots = 4, .spare = true});
  add_case();
  decide(3);
  scheduler_->pool_ready(2, Seconds{4});
  scheduler_->add_key(1);
  add_case(1);
  const auto decisions = decide(5);
  EXPECT_EQ(all<RetirePool>(decisions).at(0).pool, 2);
  EXPECT_EQ(all<StartPool>(decisions).at(0).key, 1);
}

TEST_F(IdlePools, ASpareStaysForAsLongAsAPoolOfItsKeyWorks) {
  begin({.slots = 4, .idle_time = Seconds{60}, .spare = true});
  add_case();
  decide(3);
  scheduler_->pool_ready(2, Seconds{4});
  EXPECT_THAT(decide(4), IsEmpty());
  EXPECT_THAT(decide(64), IsEmpty()) << "another one would start in its place";
  scheduler_->case_ended(1, Seconds{100});
  EXPECT_THAT(retired(100), ElementsAre(2));
  EXPECT_THAT(retired(160), ElementsAre(1));
}

TEST_F(IdlePools, NoSpareComesBackAfterIdlePoolsHadToRetireUntilACaseComes) {
  begin({.slots = 5, .spare = true});
  add_case();
  decide(3);
  scheduler_->pool_ready(2, Seconds{4});
  scheduler_->retire_idle_pools();
  const auto decisions = decide(5);
  EXPECT_THAT(all<RetirePool>(decisions), SizeIs(1));
  EXPECT_THAT(all<StartPool>(decisions), IsEmpty());
  scheduler_->pool_gone(2);
  EXPECT_THAT(decide(6), IsEmpty());
  scheduler_->add_key(1);
  add_case(1);
  EXPECT_THAT(started(7), SizeIs(2)) << "the new key's, and the spare";
}

}  // namespace
}  // namespace cp_pool::fleet_test
