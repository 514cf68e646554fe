// Tests how keys of several clients take turns when slots are short.
#include <gmock/gmock.h>

#include "driver/pool/testing/decisions.h"

namespace cp_pool::fleet_test {
namespace {

using namespace ::testing;

// Two slots, both held by a pool of key 0 for client 1, which has many cases. Key 1, of client 2, needs both.
class TurnsOfTwo : public testing::Test {
 protected:
  void SetUp() override {
    scheduler_.add_key(2);
    scheduler_.add_key(3);
    for (std::size_t i = 0; i < 100; ++i) scheduler_.case_added(0, {i, 0, 1});
    scheduler_.decide(Seconds{0});
    scheduler_.pool_ready(1, Seconds{10});
    scheduler_.decide(Seconds{10});
    EXPECT_EQ(scheduler_.look_again_at(Seconds{20}), std::nullopt);
  }

  void end_case(int pool, double now) { scheduler_.case_ended(pool, Seconds{now}); }
  std::string decide(double now) { return in_words(scheduler_.decide(Seconds{now})); }

  Scheduler scheduler_{{.slots = 2, .turn = Seconds{5}}};
};

TEST_F(TurnsOfTwo, AKeyIsOverdueAfterATurnAndGetsTheSlotsOfTheNextCaseThatEnds) {
  scheduler_.case_added(1, {100, 0, 2});
  EXPECT_EQ(decide(20), "nothing");
  EXPECT_THAT(scheduler_.look_again_at(Seconds{20}), Optional(Seconds{25})) << "it is overdue then";
  end_case(1, 24.9);
  EXPECT_EQ(decide(24.9), "case 1 on 1") << "not yet overdue";
  EXPECT_EQ(decide(25), "nothing") << "a case that runs is not stopped";
  end_case(1, 27);
  EXPECT_EQ(decide(27), "retire 1, start 2 of key 1 on 0 1");
}

TEST_F(TurnsOfTwo, AKeyKeepsItsSlotsForATurnAfterItsPoolIsReady) {
  scheduler_.case_added(1, {100, 0, 2});
  scheduler_.case_added(1, {101, 0, 2});
  scheduler_.case_added(1, {102, 0, 2});
  decide(20);
  end_case(1, 26);
  decide(26);  // starts pool 2, of key 1; key 0 waits from now on
  scheduler_.pool_gone(1);
  scheduler_.pool_ready(2, Seconds{40});
  EXPECT_EQ(decide(40), "case 100 on 2") << "key 0 is overdue, but this is the turn of key 1";
  end_case(2, 44.9);
  EXPECT_EQ(decide(44.9), "case 101 on 2");
  end_case(2, 45);
  EXPECT_EQ(decide(45), "retire 2, start 3 of key 0 on 0 1");
}

TEST_F(TurnsOfTwo, APoolThatCrashesOverAndOverGetsNoNewTurnEachTime) {
  scheduler_.case_added(1, {100, 0, 2});
  decide(20);
  end_case(1, 21);
  scheduler_.pool_ends(1);  // a crash
  decide(21);
  scheduler_.pool_gone(1);
  EXPECT_EQ(decide(21.1), "start 2 of key 0 on 0 1");
  scheduler_.pool_ready(2, Seconds{26});
  EXPECT_EQ(decide(26), "case 1 on 2") << "no pool starts for nothing";
  end_case(2, 27);
  EXPECT_EQ(decide(27), "retire 2, start 3 of key 1 on 0 1") << "the turn began with the first pool";
}

TEST_F(TurnsOfTwo, NoKeyWaitsForItsOwnClient) {
  scheduler_.case_added(1, {100, 0, 1});
  decide(20);
  EXPECT_EQ(scheduler_.look_again_at(Seconds{20}), std::nullopt);
  end_case(1, 100);
  EXPECT_EQ(decide(100), "case 1 on 1");
}

TEST_F(TurnsOfTwo, AClientThatSharesThePoolOfAnotherWaitsForItWithItsOtherKey) {
  scheduler_.case_added(0, {100, 0, 2});
  scheduler_.case_added(1, {101, 0, 1});  // waits behind the case of client 2 and 99 cases of its own
  decide(20);
  EXPECT_THAT(scheduler_.look_again_at(Seconds{20}), Optional(Seconds{25}));
}

TEST_F(TurnsOfTwo, AClientWaitsForAnotherThatWaitsWithIt) {
  scheduler_.case_added(1, {100, 0, 1});
  scheduler_.case_added(1, {101, 0, 2});
  decide(20);
  EXPECT_THAT(scheduler_.look_again_at(Seconds{20}), Optional(Seconds{25}));
}

TEST_F(TurnsOfTwo, AClientThatIsHeldIsNotOverdue) {
  scheduler_.case_added(1, {100, 0, 2});
  decide(20);
  scheduler_.hold(2, true);
  end_case(1, 30);
  EXPECT_EQ(decide(30), "case 1 on 1");
  scheduler_.hold(2, false);
  decide(31);
  EXPECT_THAT(scheduler_.look_again_at(Seconds{31}), Optional(Seconds{36})) << "it begins to wait anew";
}

TEST_F(TurnsOfTwo, NothingIsOwedToAClientThatHasGone) {
  scheduler_.case_added(1, {100, 0, 2});
  decide(20);
  EXPECT_THAT(scheduler_.drop_cases_of(2), ElementsAre(100));
  end_case(1, 30);
  EXPECT_EQ(decide(30), "case 1 on 1");
}

TEST_F(TurnsOfTwo, NothingIsOwedByAClientThatHasGone) {
  scheduler_.case_added(1, {100, 0, 2});
  decide(20);
  EXPECT_THAT(scheduler_.drop_cases_of(1), SizeIs(99));
  end_case(1, 21);
  EXPECT_EQ(decide(21), "retire 1, start 2 of key 1 on 0 1");
}

// Returns the pools that yield on four slots, where client 1 has two pools of one slot and one of two, and client 2
// wants a pool of so many ranks.
std::vector<int> pools_that_yield(int ranks) {
  Scheduler scheduler({.slots = 4, .turn = Seconds{5}});
  const std::vector<int> keys{scheduler.add_key(1), scheduler.add_key(1), scheduler.add_key(2)};
  for (const int key : keys) {
    for (std::size_t i = 0; i < 10; ++i) scheduler.case_added(key, {i, 0, 1});
  }
  scheduler.decide(Seconds{0});
  for (const int pool : {1, 2, 3}) scheduler.pool_ready(pool, Seconds{1});
  scheduler.decide(Seconds{1});
  scheduler.case_added(scheduler.add_key(ranks), {100, 0, 2});
  scheduler.decide(Seconds{10});
  for (const int pool : {1, 2, 3}) scheduler.case_ended(pool, Seconds{20});
  const auto decisions = scheduler.decide(Seconds{20});
  EXPECT_THAT(all<StartPool>(decisions), SizeIs(1));
  std::vector<int> out;  // the pool of two ranks is number 1
  for (const RetirePool& retired : all<RetirePool>(decisions)) out.push_back(retired.pool);
  EXPECT_THAT(all<SendCase>(decisions), SizeIs(3 - out.size()));
  return out;
}

TEST(Turns, ThePoolsYieldThatHoldLeastBeyondWhatIsNeeded) {
  EXPECT_THAT(pools_that_yield(1), ElementsAre(2));
  EXPECT_THAT(pools_that_yield(2), ElementsAre(1));
  EXPECT_THAT(pools_that_yield(3), ElementsAre(1, 2));
  EXPECT_THAT(pools_that_yield(4), ElementsAre(1, 2, 3));
}

// Four slots, on which two pools of two slots each run the cases of client 1. Keys 1 and 2, of clients 2 and 3, need
// two slots each.
class TurnsOfFour : public testing::Test {
 protected:
  void SetUp() override {
    for (int key = 0; key < 3; ++key) scheduler_.add_key(2);
    for (std::size_t i = 0; i < 1000; ++i) scheduler_.case_added(0, {i, 0, 1});
    scheduler_.decide(Seconds{0});
    scheduler_.pool_ready(1, Seconds{1});
    scheduler_.decide(Seconds{1});
    scheduler_.pool_ready(2, Seconds{2});
    ASSERT_EQ(decide(2), "case 1 on 2");
  }

  std::string decide(double now) { return in_words(scheduler_.decide(Seconds{now})); }

  Scheduler scheduler_{{.slots = 4, .turn = Seconds{5}}};
};

TEST_F(TurnsOfFour, APoolYieldsForEachOfTwoKeys) {
  scheduler_.case_added(1, {1000, 0, 2});
  scheduler_.case_added(2, {1001, 0, 3});
  decide(10);
  for (const int pool : {1, 2}) scheduler_.case_ended(pool, Seconds{20});
  EXPECT_EQ(decide(20), "retire 1, retire 2, start 3 of key 1 on 0 1, start 4 of key 2 on 2 3");
}

TEST_F(TurnsOfFour, NoPoolYieldsWhileTheSlotsOfALostOneComeBack) {
  scheduler_.case_added(1, {1000, 0, 2});
  decide(10);
  scheduler_.case_ended(1, Seconds{20});
  scheduler_.pool_ends(1);
  scheduler_.case_ended(2, Seconds{20});
  EXPECT_EQ(decide(20), "case 2 on 2");
  scheduler_.pool_gone(1);
  EXPECT_EQ(decide(21), "start 3 of key 1 on 0 1");
}

TEST_F(TurnsOfFour, APoolThatNoCaseWaitsForYieldsFirst) {
  scheduler_.drop_cases_of(1);
  scheduler_.case_ended(2, Seconds{3});
  decide(3);
  scheduler_.outdate_pool(2);
  scheduler_.case_added(1, {1000, 0, 1});
  EXPECT_EQ(decide(4), "retire 2, start 3 of key 1 on 2 3") << "beside pool 1, of key 0";
  scheduler_.pool_ready(3, Seconds{5});
  for (std::size_t i = 0; i < 10; ++i) scheduler_.case_added(0, {i, 0, 1});
  ASSERT_EQ(decide(5), "case 1000 on 3");
  scheduler_.case_added(2, {1001, 0, 3});
  decide(10);
  scheduler_.case_ended(1, Seconds{20});
  scheduler_.case_ended(3, Seconds{21});
  EXPECT_EQ(decide(21), "retire 3, case 0 on 1, start 4 of key 2 on 2 3")
      << "though the other has been idle for longer";
}

TEST(Turns, SlotsThatBecomeFreeAreKeptForTheOverdueKeyUntilItHasAll) {
  Scheduler scheduler({.slots = 2, .turn = Seconds{5}});
  const int one = scheduler.add_key(1);
  for (std::size_t i = 0; i < 1000; ++i) scheduler.case_added(one, {i, 0, 1});
  scheduler.decide(Seconds{0});
  scheduler.pool_ready(1, Seconds{10});
  ASSERT_THAT(all<StartPool>(scheduler.decide(Seconds{10})), SizeIs(1));
  scheduler.pool_ready(2, Seconds{20});
  scheduler.decide(Seconds{20});
  scheduler.case_added(scheduler.add_key(2), {1000, 0, 2});
  scheduler.decide(Seconds{30});
  scheduler.case_ended(1, Seconds{40});
  EXPECT_EQ(in_words(scheduler.decide(Seconds{40})), "retire 1") << "its slot is not used";
  scheduler.case_added(scheduler.add_key(1), {1001, 0, 3});
  EXPECT_EQ(in_words(scheduler.decide(Seconds{45})), "nothing") << "a third client's small key comes behind it";
  scheduler.case_ended(2, Seconds{50});
  EXPECT_EQ(in_words(scheduler.decide(Seconds{50})), "retire 2, start 3 of key 1 on 0 1");
}

}  // namespace
}  // namespace cp_pool::fleet_test
