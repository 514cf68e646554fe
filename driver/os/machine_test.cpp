#include "driver/os/machine.h"

#include <sstream>
#include <sys/resource.h>

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
  EXPECT_EQ(describe_clock_change(before, later(before, seconds(90), {}, {})), "");
  EXPECT_EQ(describe_clock_change(before, later(before, seconds(90), milliseconds(900), milliseconds(-900))), "");
  EXPECT_EQ(describe_clock_change(before, later(before, seconds(5), seconds(12), {})),
            "the machine slept for 12.0 s meanwhile");
  EXPECT_EQ(describe_clock_change(before, later(before, seconds(5), {}, seconds(3600))),
            "the machine's clock was set by +3600.0 s meanwhile");
  EXPECT_EQ(describe_clock_change(before, later(before, seconds(5), {}, seconds(-20))),
            "the machine's clock was set by -20.0 s meanwhile");
}

TEST(MachineClocks, AreReadAlike) {
  const MachineClocks before = MachineClocks::now();
  const MachineClocks after = MachineClocks::now();
  EXPECT_GE(after.running, before.running);
  EXPECT_GE(after.boot, after.running) << "what the machine has slept since its start";
}

TEST(Loopback, OfAMachineThatRunsTestsIsThere) {
  EXPECT_EQ(loopback_trouble(), "");
}

TEST(Loopback, IsNotBlamedForWantOfDescriptors) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string trouble = loopback_trouble();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(trouble, "");
}

std::optional<std::int64_t> kills_in(const std::string& text) {
  std::istringstream vmstat(text);
  return count_in(vmstat, "oom_kill");
}

TEST(OomKills, AreALineOfVmstat) {
  EXPECT_EQ(kills_in("nr_free_pages 7\ndrop_pagecache 0\noom_kill 12\nnuma_pte_updates 3\n"), 12);
  EXPECT_EQ(kills_in("oom_kill 0"), 0);
}

TEST(OomKills, AreUnknownWithoutIt) {
  EXPECT_EQ(kills_in(""), std::nullopt);
  EXPECT_EQ(kills_in("no_oom_kill 3\noom_kill_disable 1\n"), std::nullopt);
  EXPECT_EQ(kills_in("oom_kill many\n"), std::nullopt);
}

}  // namespace
}  // namespace cp_pool
