#include "worker/environment_baseline.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

TEST(EnvironmentBaseline, UndoesWhatACaseChanged) {
  setenv("CP_POOL_TEST_KEPT", "old", 1);
  setenv("CP_POOL_TEST_LOST", "there", 1);
  unsetenv("CP_POOL_TEST_NEW");
  const EnvironmentBaseline baseline;
  setenv("CP_POOL_TEST_KEPT", "new=value", 1);
  unsetenv("CP_POOL_TEST_LOST");
  setenv("CP_POOL_TEST_NEW", "x", 1);
  baseline.restore();
  EXPECT_EQ(std::string(std::getenv("CP_POOL_TEST_KEPT")), "old");
  EXPECT_EQ(std::string(std::getenv("CP_POOL_TEST_LOST")), "there");
  EXPECT_EQ(std::getenv("CP_POOL_TEST_NEW"), nullptr);
}

}  // namespace
}  // namespace cp_pool
