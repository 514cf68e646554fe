#include "driver/process/oom_kills.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

TEST(OomKills, AreALineOfVmstat) {
  EXPECT_EQ(oom_kills_in("nr_free_pages 7\ndrop_pagecache 0\noom_kill 12\nnuma_pte_updates 3\n"), 12);
  EXPECT_EQ(oom_kills_in("oom_kill 0"), 0);
}

TEST(OomKills, AreUnknownWithoutIt) {
  EXPECT_EQ(oom_kills_in(""), std::nullopt);
  EXPECT_EQ(oom_kills_in("no_oom_kill 3\noom_kill_disable 1\n"), std::nullopt);
  EXPECT_EQ(oom_kills_in("oom_kill many\n"), std::nullopt);
}

}  // namespace
}  // namespace cp_pool
