// What tests of the real worker share.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "worker/testing/worker_group.h"

namespace cp_pool::test {

// Ranks end within a second on a quiet machine; one that does not end never will.
inline constexpr std::chrono::milliseconds kEndLimit{20'000};
// A worker has a second to free its ranks and one to connect them again, else it asks for a new pool. A busy machine
// may need longer, but not each time; unless it is so busy that a start takes seconds instead of some 300 ms.
inline constexpr int kTriesToRecover = 5;
inline constexpr double kStartOfABusyMachine = 2000;

inline double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

class Worker : public ::testing::Test {
 protected:
  static WorkerGroup::Config with(std::vector<std::string> arguments, int ranks = 2) {
    return {.ranks = ranks, .arguments = std::move(arguments)};
  }

  static void expect_pass(const std::optional<protocol::ResultEvent>& result) {
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->outcome, CaseOutcome::pass) << result->reason;
    EXPECT_TRUE(result->healthy);
    for (const auto& rank : result->ranks) EXPECT_TRUE(rank.ok) << rank.error;
  }
};

}  // namespace cp_pool::test
