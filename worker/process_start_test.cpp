#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "worker/startup_clock.h"

namespace cp_pool {
namespace {

TEST(ProcessStart, IsFoundBehindAnyName) {
  const char* const fields = "S 1 2 2 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 123456 7 8";
  for (const char* const name : {"worker", "two words", "(a) b)", ""}) {
    const std::string line = std::string{"17 ("} + name + ") " + fields + "\n";
    EXPECT_EQ(start_ticks_in(line), 123456) << line;
  }
}

TEST(ProcessStart, IsUnknownWithoutTheField) {
  EXPECT_EQ(start_ticks_in(""), std::nullopt);
  EXPECT_EQ(start_ticks_in("17 worker S 1 2 2 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 123456 7"), std::nullopt);
  EXPECT_EQ(start_ticks_in("17 (worker) S 1 2"), std::nullopt);
}

}  // namespace
}  // namespace cp_pool
