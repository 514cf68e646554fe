#include "driver/process/machine_clocks.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

MachineClocks later(MachineClocks from, milliseconds running, milliseconds slept, milliseconds set) {
  from.running += running;
  from.boot += running + slept;
  from.wall += running + slept + set;
  return from;
}

TEST(MachineClocks, NameASleepAndAClockThatWasSet) {
  const MachineClocks before = MachineClocks::now();
  EXPECT_EQ(clock_trouble(before, later(before, seconds(90), {}, {})), "");
  EXPECT_EQ(clock_trouble(before, later(before, seconds(90), milliseconds(900), milliseconds(-900))), "");
  EXPECT_EQ(clock_trouble(before, later(before, seconds(5), seconds(12), {})),
            "the machine slept for 12.0 s meanwhile");
  EXPECT_EQ(clock_trouble(before, later(before, seconds(5), {}, seconds(3600))),
            "the machine's clock was set by +3600.0 s meanwhile");
  EXPECT_EQ(clock_trouble(before, later(before, seconds(5), {}, seconds(-20))),
            "the machine's clock was set by -20.0 s meanwhile");
}

TEST(MachineClocks, AreReadAlike) {
  const MachineClocks before = MachineClocks::now();
  const MachineClocks after = MachineClocks::now();
  EXPECT_GE(after.running, before.running);
  EXPECT_GE(after.boot, after.running) << "what the machine has slept since its start";
}

}  // namespace
}  // namespace cp_pool
