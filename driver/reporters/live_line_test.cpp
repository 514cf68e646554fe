#include "driver/reporters/live_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using ::testing::EndsWith;

LiveState some_state() {
  LiveState state;
  state.expanded = 80;
  state.counts = {30, 1, 9, 0, 0, 0, 0, 0, 0};
  state.elapsed_s = 10;
  state.running = "te-flash/cp_2_0/p2p";
  return state;
}

TEST(LiveLine, ShowsCountsRateEtaAndTheRunningCase) {
  EXPECT_EQ(live_line(some_state(), 200),
            "[==========          ] 40/80 30 pass 1 fail 9 skip | 4.0/s ETA 0:10 | te-flash/cp_2_0/p2p");
}

TEST(LiveLine, ShowsHowLongACaseHasBeenRunningFromASecondOn) {
  LiveState state = some_state();
  state.running_s = 0.9;
  EXPECT_THAT(live_line(state, 200), EndsWith(" | te-flash/cp_2_0/p2p"));
  state.running_s = 75;
  EXPECT_THAT(live_line(state, 200), EndsWith(" | 1:15 te-flash/cp_2_0/p2p"));
}

TEST(LiveLine, ShowsThePhaseOfTheRunningCase) {
  LiveState state = some_state();
  state.running_s = 75;
  state.phase = "reference";
  EXPECT_THAT(live_line(state, 200), EndsWith(" | 1:15 te-flash/cp_2_0/p2p (reference)"));
}

TEST(LiveLine, TheIdHasRoomBeforeTheBarAndTheRate) {
  LiveState state = some_state();
  state.running_s = 12;
  state.phase = "forward";
  state.running = "quick/causal/p2p/cp2/thd/fp32/pad";
  const std::string counts = "40/80 30 pass 1 fail 9 skip | ";
  EXPECT_EQ(live_line(state, 103), "[==   ] " + counts + "4.0/s ETA 0:10 | 0:12 " + state.running + " (forward)");
  EXPECT_EQ(live_line(state, 102), counts + "4.0/s ETA 0:10 | 0:12 " + state.running + " (forward)");
  EXPECT_EQ(live_line(state, 94), counts + "ETA 0:10 | 0:12 " + state.running + " (forward)");
  EXPECT_EQ(live_line(state, 79), counts + "ETA 0:10 | 0:12 quick/ca../thd/fp32/pad (forward)");
}

TEST(LiveLine, IsCutAtTheWidthByColumnsNotBytes) {
  LiveState state = some_state();
  EXPECT_EQ(live_line(state, 30), "40/80 30 pass 1 fail 9 skip | ");
  state.running =
      "m\xc3\xb6"
      "del";  // 5 columns, 6 bytes
  EXPECT_EQ(live_line(state, 44 + 3 + 5), "40/80 30 pass 1 fail 9 skip | 4.0/s ETA 0:10 | " + state.running);
  EXPECT_EQ(live_line(state, 0), "");
}

TEST(LiveLine, CasesThatWereNeverStartedAreNoProgress) {
  LiveState state = some_state();
  state.counts.at(static_cast<std::size_t>(CaseOutcome::cancelled)) = 1;
  state.counts.at(static_cast<std::size_t>(CaseOutcome::not_run)) = 39;
  state.stopping = true;
  EXPECT_EQ(
      live_line(state, 200),
      "[==========          ] 41/80 30 pass 1 fail 9 skip 1 cancelled 39 not-run | stopping | te-flash/cp_2_0/p2p");
}

TEST(LiveLine, PromisesNothingBeforeTheFirstResult) {
  LiveState state;
  state.expanded = 80;
  state.elapsed_s = 5;
  EXPECT_EQ(live_line(state, 200), "[                    ] 0/80");
}

TEST(LiveLine, OfASearchHasNoEndInSight) {
  LiveState state = some_state();
  state.expanded = 0;
  EXPECT_EQ(live_line(state, 200), "40 cases: 30 pass 1 fail 9 skip | 4.0/s | te-flash/cp_2_0/p2p");
}

}  // namespace
}  // namespace cp_pool
