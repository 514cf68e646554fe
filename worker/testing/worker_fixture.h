// Shared parts of the tests of the real worker.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "worker/testing/worker_group.h"

namespace cp_pool::test {

// On a quiet machine ranks end within a second; a rank that has not ended after this time is taken to hang.
inline constexpr std::chrono::milliseconds kEndLimit{60'000};
// A worker has one second to free its ranks and one to connect them again; else it asks for a new pool. A busy machine
// may need longer, but not every time, unless it is so busy that a start takes seconds instead of some 300 ms. The same
// holds for the half second in which every rank has to say goodbye after a shutdown.
inline constexpr int kTriesToRecover = 5;
inline constexpr double kStartOfABusyMachine = 2000;

inline double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Ranks that are ready.
class ReadyGroup : public WorkerGroup {
 public:
  explicit ReadyGroup(const Config& config = {}) : WorkerGroup(config) {
    const auto spawned = std::chrono::steady_clock::now();
    ready = next<protocol::ReadyEvent>();
    start_ms = ms_since(spawned);
  }
  protocol::ReadyEvent ready;
  double start_ms = 0;
};

class Worker : public ::testing::Test {
 protected:
  static WorkerGroup::Config with(std::vector<std::string> arguments, int ranks = 2) {
    return {.ranks = ranks, .arguments = std::move(arguments)};
  }

  static void expect_pass(const protocol::ResultEvent& result) {
    EXPECT_EQ(result.outcome, CaseOutcome::pass) << result.reason;
    EXPECT_TRUE(result.healthy);
    for (const auto& rank : result.ranks) EXPECT_TRUE(rank.ok) << rank.error;
  }
};

}  // namespace cp_pool::test
