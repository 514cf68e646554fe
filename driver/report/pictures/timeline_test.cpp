#include "driver/report/pictures/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

PoolSpawned spawned(const PoolId& id, int world_size, double at_ms) {
  return {.pool = id, .world_size = world_size, .pids = {}, .at_ms = at_ms};
}

CaseFinished case_at(double end_ms, double duration_ms, const PoolId& pool) {
  CaseFinished event = test::finished(0, "id", CaseOutcome::pass);
  event.pool = pool;
  event.duration_ms = duration_ms;
  event.at_ms = end_ms;
  return event;
}

TEST(Timeline, KeepsWhenPoolsAndCasesWere) {
  RunReport run;
  run.add(spawned({"cpu/2", 1}, 2, 120));
  PoolReady ready = test::pool_ready();
  ready.spawn_to_ready_ms = 800;
  ready.at_ms = 900;
  run.add(ready);
  run.add(CaseStarted{.index = 0, .id = "id", .pool = {"cpu/2", 1}, .at_ms = 1050});
  run.add(case_at(1500, 400, {"cpu/2", 1}));
  run.add(case_at(1550, 40, {"cpu/2", 1}));
  RunPaused paused{.paused_ms = 5000, .at_ms = 1600};
  run.add(paused);
  PoolRetired retired = test::pool_retired(RetireReason::crash, "rank 1 died");
  retired.at_ms = 2000;
  run.add(retired);
  const Timeline timeline(run);
  ASSERT_THAT(timeline.pools(), SizeIs(1));
  const TimelinePool& pool = timeline.pools()[0];
  EXPECT_EQ(pool.spawned, 100) << "the event comes after the start of the ranks";
  EXPECT_EQ(pool.ready, 900);
  EXPECT_EQ(pool.retired, 2000);
  EXPECT_EQ(pool.reason, RetireReason::crash);
  ASSERT_THAT(pool.cases, SizeIs(2));
  EXPECT_EQ(pool.cases[0].begin, 1050);
  EXPECT_EQ(pool.cases[0].end, 1500);
  EXPECT_EQ(pool.cases[0].duration, 400);
  EXPECT_EQ(pool.cases[1].begin, 1510) << "no event says when it was sent";
  EXPECT_EQ(timeline.pauses().at(0).length, 5000);
  EXPECT_EQ(timeline.end(), 2000);
}

TEST(Timeline, KeepsNothingOfEventsThatDoNotSayWhen) {
  RunReport run;
  run.add(PoolSpawned{{"cpu/2", 1}, 2, {}});
  run.add(test::pool_ready());
  run.add(test::finished(0, "id", CaseOutcome::pass));
  run.add(test::pool_retired(RetireReason::finished));
  const Timeline timeline(run);
  EXPECT_THAT(timeline.pools(), IsEmpty());
  EXPECT_EQ(timeline.without_pool(), 0U);
}

TEST(Timeline, CountsCasesThatNoPoolRan) {
  RunReport run;
  CaseFinished event = case_at(10, 0, {"cpu/2", 1});
  run.add(event);
  event.pool.reset();
  run.add(event);
  const Timeline timeline(run);
  EXPECT_EQ(timeline.without_pool(), 2U) << "no pool of that name was spawned";
}

TEST(Timeline, APoolThatTheRunLeftEndsWithIt) {
  RunReport run;
  run.add(spawned({"cpu/2", 1}, 2, 0));
  run.add(case_at(70, 10, {"cpu/2", 1}));
  const Timeline timeline(run);
  EXPECT_FALSE(timeline.pools()[0].retired);
  EXPECT_EQ(timeline.end_of(timeline.pools()[0]), 70);
}

TEST(Timeline, PoolsOfAKeyFollowOneAnotherInALane) {
  RunReport run;
  const auto add = [&](const PoolId& id, int world_size, double from, double to) {
    run.add(spawned(id, world_size, from));
    PoolRetired retired = test::pool_retired(RetireReason::finished);
    retired.pool = id;
    retired.at_ms = to;
    run.add(retired);
  };
  add({"cpu/10", 1}, 10, 0, 5);
  add({"cpu/2", 1}, 2, 0, 10);
  add({"cpu/2", 2}, 2, 10, 20);
  add({"cpu/2", 3}, 2, 15, 30);  // of another run at the same time
  add({"cpu/2", 4}, 2, 40, 50);
  using Lane = std::vector<std::size_t>;
  const Timeline timeline(run);
  EXPECT_THAT(timeline.lanes(), ElementsAre(Lane{1, 2, 4}, Lane{3}, Lane{0}));
}

}  // namespace
}  // namespace cp_pool
