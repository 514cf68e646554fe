#include "driver/process/loopback.h"

#include <sys/resource.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

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

}  // namespace
}  // namespace cp_pool
