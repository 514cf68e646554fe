// Tests of pools without a case: how long they stay, which of them are kept as spares, and which may run no more cases.
#include <optional>

#include <gmock/gmock.h>

#include "driver/pool/testing/decisions.h"

namespace cp_pool::fleet_test {
namespace {

using namespace ::testing;

// A fleet with one key of two ranks. Its pool, number 1, was ready after 1 s and ran case 0 until 2 s. If a spare is
// wanted, it is pool 2 and still starting.
class IdlePools : public testing::Test {
 protected:
  void begin(const FleetSettings& settings) {
    scheduler_.emplace(settings);
    scheduler_->add_key(2);
    add_case();
    decide(0);
    scheduler_->pool_ready(1, Seconds{1});
    ASSERT_EQ(decide(1), settings.spare ? "case 0 on 1, start 2 of key 0 on 2 3" : "case 0 on 1");
    scheduler_->case_ended(1, Seconds{2});
  }

  void add_case(int key = 0) { scheduler_->case_added(key, {cases_++, 0}); }
  std::string decide(double now) { return in_words(scheduler_->decide(Seconds{now})); }

  std::optional<Scheduler> scheduler_;
  std::size_t cases_ = 0;
};

TEST_F(IdlePools, StayForEverWithoutATime) {
  begin({.slots = 4});
  EXPECT_EQ(decide(1e6), "nothing");
  EXPECT_EQ(scheduler_->look_again_at(Seconds{1e6}), std::nullopt);
}

TEST_F(IdlePools, AreRetiredWhenTheyHadNothingToDoForTheTime) {
  for (const std::optional<int> slots : {std::optional(4), std::optional<int>()}) {
    cases_ = 0;
    begin({.slots = slots, .idle_time = Seconds{60}});
    EXPECT_EQ(decide(2), "nothing");
    EXPECT_THAT(scheduler_->look_again_at(Seconds{2}), Optional(Seconds{62}));
    EXPECT_EQ(decide(61.9), "nothing");
    EXPECT_EQ(decide(62), "retire 1");
    EXPECT_EQ(scheduler_->look_again_at(Seconds{62}), std::nullopt);
  }
}

TEST_F(IdlePools, AreNotRetiredForTheTimeThatTheyWorked) {
  begin({.slots = 4, .idle_time = Seconds{60}});
  add_case();
  decide(2);
  scheduler_->case_ended(1, Seconds{1000});
  add_case();
  EXPECT_EQ(decide(2000), "case 2 on 1") << "a case that comes in time, however late it is noticed";
}

TEST_F(IdlePools, RetireWhenMemoryIsShortAndOneThatHasACaseDoesNot) {
  begin({.slots = 4});
  EXPECT_THAT(scheduler_->idle_pools(), ElementsAre(1));
  add_case();
  scheduler_->retire_idle_pools();
  EXPECT_EQ(decide(3), "case 1 on 1") << "a case waited for it";
  EXPECT_THAT(scheduler_->idle_pools(), IsEmpty());
  scheduler_->retire_idle_pools();
  scheduler_->case_ended(1, Seconds{4});
  EXPECT_EQ(decide(4), "nothing") << "it was not idle";
  scheduler_->retire_idle_pools();
  EXPECT_THAT(scheduler_->idle_pools(), IsEmpty());
  EXPECT_EQ(decide(5), "retire 1");
  add_case();
  EXPECT_EQ(decide(6), "start 2 of key 0 on 0 1");
}

TEST_F(IdlePools, AreReplacedWhenTheyAreOutdatedAndCasesWait) {
  begin({.slots = 4});
  scheduler_->outdate_pool(1);
  EXPECT_THAT(scheduler_->idle_pools(), IsEmpty());
  add_case();
  EXPECT_EQ(scheduler_->next_of(1), std::nullopt);
  EXPECT_EQ(decide(3), "retire 1, start 2 of key 0 on 0 1") << "it gave its slots back at once";
}

TEST_F(IdlePools, AreNotReplacedWhenTheyAreOutdatedAndNoCaseWaits) {
  begin({.slots = 4});
  scheduler_->outdate_pool(1);
  EXPECT_EQ(decide(3), "retire 1");
  EXPECT_EQ(decide(4), "nothing");
}

TEST_F(IdlePools, APoolThatIsOutdatedWhileItWorksEndsItsCaseAndIsReplacedMeanwhile) {
  begin({.slots = 4});
  add_case();
  decide(2);
  scheduler_->case_ended(1, Seconds{2});  // cases turn out to be short, so that a second pool would not pay
  add_case();
  decide(2);
  scheduler_->outdate_pool(1);
  EXPECT_EQ(decide(2.1), "nothing") << "no case waits";
  add_case();
  EXPECT_EQ(decide(2.2), "start 2 of key 0 on 2 3");
  scheduler_->case_ended(1, Seconds{5});
  EXPECT_EQ(decide(5), "retire 1");
  scheduler_->pool_ready(2, Seconds{6});
  EXPECT_EQ(decide(6), "case 3 on 2");
}

TEST_F(IdlePools, APoolThatIsOutdatedWhileItStartsIsRetiredAtOnce) {
  begin({.slots = 2});
  scheduler_->outdate_pool(1);
  add_case();
  ASSERT_EQ(decide(3), "retire 1, start 2 of key 0 on 0 1");
  scheduler_->pool_gone(1);
  scheduler_->outdate_pool(2);
  EXPECT_EQ(decide(4), "retire 2") << "its ranks still hold the slots";
  scheduler_->pool_gone(2);
  EXPECT_EQ(decide(5), "start 3 of key 0 on 0 1");
}

TEST_F(IdlePools, NoPoolStartsForAHeldClientAndNoneIsLostForIt) {
  begin({.slots = 4});
  scheduler_->hold(0, true);
  add_case();
  EXPECT_EQ(decide(2), "nothing");
  scheduler_->add_key(1);
  add_case(1);
  EXPECT_EQ(decide(3), "nothing") << "the key is new, the client held before";
  scheduler_->no_more_cases();
  EXPECT_EQ(decide(4), "nothing") << "the pool may yet have a case";
  scheduler_->hold(0, false);
  EXPECT_EQ(decide(5), "case 1 on 1, start 2 of key 1 on 2");
}

TEST_F(IdlePools, HeldCasesAreDroppedWithTheirKeyAndWithTheirClient) {
  begin({.slots = 4});
  scheduler_->add_key(1);
  scheduler_->hold(0, true);
  for (const int key : {1, 0, 1, 0}) add_case(key);
  EXPECT_THAT(scheduler_->drop_cases_of(0, 0), ElementsAre(2, 4));
  for (const int key : {0, 1}) add_case(key);
  EXPECT_THAT(scheduler_->drop_cases_of(0), ElementsAre(1, 3, 5, 6));
  EXPECT_EQ(decide(2), "nothing") << "no case is left";
  add_case();
  EXPECT_EQ(decide(3), "case 7 on 1") << "the client is held no longer";
  scheduler_->add_key(2);
  add_case(2);
  EXPECT_EQ(decide(4), "start 2 of key 2 on 2 3") << "nor by a new key";
}

TEST_F(IdlePools, ASpareRunsTheNextCaseAfterACrash) {
  begin({.slots = 4, .spare = true});
  add_case();
  EXPECT_EQ(decide(3), "case 1 on 1");
  EXPECT_EQ(decide(4), "nothing") << "the spare is starting";
  scheduler_->pool_ready(2, Seconds{5});
  EXPECT_EQ(decide(5), "nothing") << "it is idle";
  scheduler_->pool_ends(1);  // a crash
  add_case();
  EXPECT_EQ(decide(6), "case 2 on 2") << "it starts at once; no slot is free for another";
  scheduler_->pool_gone(1);
  EXPECT_EQ(decide(7), "start 3 of key 0 on 0 1") << "there is a spare again";
}

// What is decided when the only pool of a key of two ranks becomes ready, beyond its case.
std::string beside_a_working_pool(const FleetSettings& settings, int ranks_that_wait, std::size_t cases, bool closed) {
  Scheduler scheduler(settings);
  const int key = scheduler.add_key(2);
  for (std::size_t i = 0; i < cases; ++i) scheduler.case_added(key, {i, 0});
  if (closed) scheduler.no_more_cases();
  scheduler.decide(Seconds{0});
  if (ranks_that_wait > 0) scheduler.case_added(scheduler.add_key(ranks_that_wait), {cases, 0});
  scheduler.pool_ready(1, Seconds{1});
  const std::string out = in_words(scheduler.decide(Seconds{1}));
  const std::string sent = "case 0 on 1";
  EXPECT_TRUE(out.starts_with(sent)) << out;
  return out.substr(sent.size());
}

TEST_F(IdlePools, ASpareStartsOnlyIfSlotsAreFreeThatNobodyWaitsForAndACaseMayCome) {
  const std::string spare = ", start 2 of key 0 on 2 3";
  EXPECT_EQ(beside_a_working_pool({.slots = 5, .spare = true}, 0, 1, false), spare);
  EXPECT_EQ(beside_a_working_pool({.slots = 5}, 0, 1, false), "") << "not wanted";
  EXPECT_EQ(beside_a_working_pool({.slots = 3, .spare = true}, 0, 1, false), "") << "no room";
  EXPECT_EQ(beside_a_working_pool({.spare = true}, 0, 1, false), "") << "slots are not counted";
  EXPECT_EQ(beside_a_working_pool({.slots = 5, .spare = true}, 4, 1, false), "") << "a key waits for slots";
  EXPECT_EQ(beside_a_working_pool({.slots = 5, .spare = true}, 0, 1, true), "") << "it was the last case";
  EXPECT_EQ(beside_a_working_pool({.slots = 5, .spare = true}, 0, 2, true), spare);
}

TEST_F(IdlePools, ASpareEndsWhenNoCaseCanComeForIt) {
  begin({.slots = 4, .spare = true});
  add_case();
  decide(3);
  scheduler_->no_more_cases();
  EXPECT_EQ(decide(4), "retire 2");
}

TEST_F(IdlePools, ASpareGivesItsSlotsToAKeyThatNeedsThem) {
  begin({.slots = 4, .spare = true});
  add_case();
  decide(3);
  scheduler_->pool_ready(2, Seconds{4});
  scheduler_->add_key(1);
  add_case(1);
  EXPECT_EQ(decide(5), "retire 2, start 3 of key 1 on 2");
}

TEST_F(IdlePools, ASpareStaysForAsLongAsAPoolOfItsKeyWorks) {
  begin({.slots = 4, .idle_time = Seconds{60}, .spare = true});
  add_case();
  decide(3);
  scheduler_->pool_ready(2, Seconds{4});
  EXPECT_EQ(decide(4), "nothing");
  EXPECT_EQ(decide(64), "nothing") << "another one would start in its place";
  scheduler_->case_ended(1, Seconds{100});
  EXPECT_EQ(decide(100), "retire 2");
  EXPECT_EQ(decide(160), "retire 1");
}

TEST_F(IdlePools, NoSpareComesBackAfterIdlePoolsHadToRetireUntilACaseComes) {
  begin({.slots = 5, .spare = true});
  add_case();
  decide(3);
  scheduler_->pool_ready(2, Seconds{4});
  scheduler_->retire_idle_pools();
  EXPECT_EQ(decide(5), "retire 2");
  scheduler_->pool_gone(2);
  EXPECT_EQ(decide(6), "nothing");
  scheduler_->add_key(1);
  add_case(1);
  EXPECT_EQ(decide(7), "start 3 of key 1 on 2, start 4 of key 0 on 3 4") << "the new key's, and the spare";
}

}  // namespace
}  // namespace cp_pool::fleet_test
