#include "driver/process/oom_kills.h"

#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

std::optional<std::int64_t> kills_in(const std::string& text) {
  std::istringstream vmstat(text);
  return oom_kills_in(vmstat);
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
