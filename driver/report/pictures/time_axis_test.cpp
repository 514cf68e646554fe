#include "driver/report/pictures/time_axis.h"

#include <gmock/gmock.h>

namespace cp_pool {
namespace {

using namespace ::testing;

std::vector<std::string> tick_texts(const std::vector<TimeAxis::Tick>& ticks) {
  std::vector<std::string> out;
  for (const TimeAxis::Tick& tick : ticks) out.push_back(tick.text);
  return out;
}

TEST(TimeAxis, IsEvenWithoutCuts) {
  const TimeAxis axis({{.begin = 1000, .end = 3000}, {.begin = 2000, .end = 5000}}, 400);
  EXPECT_THAT(axis.x(1000), DoubleEq(0));
  EXPECT_THAT(axis.x(2000), DoubleEq(100));
  EXPECT_THAT(axis.x(5000), DoubleEq(400));
  EXPECT_THAT(axis.x(0), DoubleEq(0)) << "before its beginning";
  EXPECT_THAT(axis.x(9000), DoubleEq(400)) << "after its end";
  EXPECT_THAT(axis.cuts(), IsEmpty());
}

TEST(TimeAxis, CutsOutLongTimesInWhichNothingWas) {
  const TimeAxis axis({{.begin = 3'600'000, .end = 3'610'000}, {.begin = 0, .end = 10'000}}, 214);
  EXPECT_THAT(axis.x(10'000), DoubleEq(100));
  EXPECT_THAT(axis.x(3'600'000), DoubleEq(114));
  EXPECT_THAT(axis.x(3'610'000), DoubleEq(214));
  ASSERT_EQ(axis.cuts().size(), 1U);
  EXPECT_EQ(axis.cuts()[0].ms, 3'590'000);
  EXPECT_THAT(axis.cuts()[0].x, DoubleEq(107));
  EXPECT_THAT(axis.x(1'000'000), DoubleEq(107)) << "inside of the cut";
  EXPECT_THAT(TimeAxis({{.begin = 0, .end = 10'000}, {.begin = 11'000, .end = 20'000}}, 200).cuts(), IsEmpty())
      << "a second is short";
}

TEST(TimeAxis, TicksAreRoundAndFarEnoughApart) {
  EXPECT_THAT(tick_texts(TimeAxis({{.begin = 0, .end = 40}}, 400).ticks(90)),
              ElementsAre("0", "10 ms", "20 ms", "30 ms", "40 ms"));
  EXPECT_THAT(tick_texts(TimeAxis({{.begin = 0, .end = 100'000}}, 400).ticks(90)),
              ElementsAre("0", "30.0 s", "1 m 00 s", "1 m 30 s"));
  EXPECT_THAT(tick_texts(TimeAxis({{.begin = 0, .end = 7'000'000}}, 400).ticks(90)),
              ElementsAre("0", "30 m 00 s", "1 h 00 m", "1 h 30 m"));
  double last = -90;
  for (const TimeAxis::Tick& tick :
       TimeAxis({{.begin = 0, .end = 8000}, {.begin = 90'000, .end = 97'000}}, 400).ticks(90)) {
    EXPECT_GE(tick.x - last, 90);
    last = tick.x;
  }
}

TEST(TimeAxis, TakesWhateverTimesThereAre) {
  EXPECT_THAT(TimeAxis({}, 100).ticks(90), IsEmpty());
  EXPECT_EQ(TimeAxis({}, 100).x(5), 0);
  EXPECT_EQ(TimeAxis({{.begin = 7, .end = 7}}, 100).x(7), 0);
  const TimeAxis huge({{.begin = 0, .end = 1}, {.begin = 1e300, .end = 1e300}}, 100);
  EXPECT_LE(huge.ticks(90).size(), 3U);
}

}  // namespace
}  // namespace cp_pool
