#include "driver/report/live_line.h"

#include <gmock/gmock.h>

namespace cp_pool {
namespace {

using namespace ::testing;

LiveState some_state() {
  LiveState state;
  state.expanded = 80;
  state.counts = {30, 1, 9, 0, 0, 0, 0, 0, 0};
  state.elapsed_s = 10;
  return state;
}

TEST(LiveLine, ShowsCountsRateAndEta) {
  EXPECT_EQ(live_line(some_state(), 200), "[==========          ] 40/80 30 pass 1 fail 9 skip | 4.0/s ETA 0:10");
}

TEST(LiveLine, AnEtaThatEarlierRunsTellIsTheBetterOne) {
  LiveState state = some_state();
  state.left_s = 75;
  EXPECT_THAT(live_line(state, 200), EndsWith(" | 4.0/s ETA 1:15"));
  state.counts = {80, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_THAT(live_line(state, 200), EndsWith(" | 8.0/s")) << "nothing is left";
}

TEST(LiveLine, TheBarGoesBeforeTheRate) {
  const std::string counts = "40/80 30 pass 1 fail 9 skip | ";
  EXPECT_EQ(live_line(some_state(), 52), "[==   ] " + counts + "4.0/s ETA 0:10");
  EXPECT_EQ(live_line(some_state(), 51), counts + "4.0/s ETA 0:10");
  EXPECT_EQ(live_line(some_state(), 43), counts + "ETA 0:10");
}

TEST(LiveLine, IsCutAtTheWidth) {
  EXPECT_EQ(live_line(some_state(), 30), "40/80 30 pass 1 fail 9 skip | ");
  EXPECT_EQ(live_line(some_state(), 0), "");
}

TEST(LiveLine, AStreamHasNoEndToShow) {
  LiveState state = some_state();
  state.expanded = 0;
  EXPECT_EQ(live_line(state, 200), "40 cases: 30 pass 1 fail 9 skip | 4.0/s");
}

TEST(LiveLine, ARunThatIsStoppedPromisesNothing) {
  LiveState state = some_state();
  state.stopping = true;
  EXPECT_THAT(live_line(state, 200), EndsWith("9 skip | stopping"));
}

TEST(LiveItem, HasAgeNameAndPhase) {
  EXPECT_EQ(live_item({.name = "quick/a", .seconds = 75.9, .phase = "reference"}, 80), "   1:15 quick/a (reference)");
  EXPECT_EQ(live_item({.name = "pool cpu/2 #1 starts", .seconds = 0.4}, 80), "   0:00 pool cpu/2 #1 starts");
}

TEST(LiveItem, ANameLacksItsMiddleWhereItDoesNotFit) {
  const LiveItem item{.name = "quick/causal/p2p/cp2/thd/fp32/pad", .seconds = 12, .phase = "forward"};
  EXPECT_EQ(live_item(item, 51), "   0:12 quick/causal/p2p/cp2/thd/fp32/pad (forward)");
  EXPECT_THAT(live_item(item, 41), SizeIs(41));
  EXPECT_THAT(live_item(item, 10), SizeIs(10));
  // The name has 5 columns and 6 bytes.
  EXPECT_EQ(live_item({.name = "m\xc3\xb6"
                               "del",
                       .seconds = 0},
                      13),
            "   0:00 m\xc3\xb6"
            "del");
}

TEST(LiveLines, AllThatFit) {
  const std::vector<LiveItem> items(4, {.name = "a", .seconds = 1});
  LiveState state;
  state.expanded = 9;
  EXPECT_THAT(live_lines(state, items, 20, 5), SizeIs(5));
  EXPECT_THAT(live_lines(state, items, 20, 4),
              ElementsAre("   0:01 a", "   0:01 a", "        and 2 more", "[              ] 0/9"));
  EXPECT_THAT(live_lines(state, items, 20, 2), ElementsAre("        and 4 more", "[              ] 0/9"));
  EXPECT_THAT(live_lines(state, items, 20, 1), ElementsAre("[              ] 0/9"));
  EXPECT_THAT(live_lines(state, {}, 20, 9), ElementsAre("[              ] 0/9"));
}

}  // namespace
}  // namespace cp_pool
