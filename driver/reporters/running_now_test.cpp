#include "driver/reporters/running_now.h"

#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;

TEST(RunningNow, NamesCasesPoolsAgesAndPhases) {
  RunningNow view;
  view.on_event(test::run_started(9));
  view.on_event(PoolSpawned{.pool = {"cpu/2", 1}, .world_size = 2, .pids = {70, 71}});
  view.on_event(test::pool_ready());
  view.on_event(PoolSpawned{.pool = {"cpu/4", 1}, .world_size = 4, .pids = {}});
  view.on_event(test::finished(0, "a", CaseOutcome::pass));
  CaseStarted started;
  started.index = 1;
  started.id = "b";
  started.pool = {"cpu/2", 1};
  started.attempt = 2;
  view.on_event(started);
  CaseProgress progress;
  progress.index = 1;
  progress.phase = "forward";
  view.on_event(progress);
  EXPECT_THAT(view.lines(Clock::now() + std::chrono::seconds{100}),
              ElementsAre("1 of 9 finished; 1 case running, 1 pool starting, 0 pools idle",
                          MatchesRegex("b has been running for 1 m 4. s on pool cpu/2 #1 .2 ranks, processes 70, 71., "
                                       "attempt 2, in forward for 1 m 4. s"),
                          MatchesRegex("pool cpu/4 #1 has been starting for 1 m 4. s")));
  view.on_event(test::finished(1, "b", CaseOutcome::pass));
  view.on_event(test::pool_retired(RetireReason::finished));
  EXPECT_THAT(view.lines(Clock::now()), ElementsAre("2 of 9 finished; 0 cases running, 1 pool starting, 0 pools idle",
                                                    MatchesRegex("pool cpu/4 #1 has been starting for .*")));
}

}  // namespace
}  // namespace cp_pool
