#include "driver/report/told_failures.h"

#include <gtest/gtest.h>

#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

TEST(ToldFailures, NameTheFirstOfTheirKind) {
  ToldFailures told;
  const auto error = [](std::size_t index, const std::string& id, const std::string& reason) {
    return test::finished(index, id, CaseOutcome::error, reason);
  };
  EXPECT_EQ(told.first_like(error(0, "a", "rank 1: cannot map 0x7fa0")), "");
  EXPECT_EQ(told.first_like(error(1, "b", "rank 0: cannot map 0x12")), "a");
  EXPECT_EQ(told.first_like(error(2, "c", "rank 1: cannot unmap 0x12")), "");
  EXPECT_EQ(told.first_like(error(3, "d", "rank 1: cannot unmap 0x7fa0")), "c");
}

PoolRetired not_started(int generation, const std::string& detail) {
  PoolRetired event = test::pool_retired(RetireReason::start_failed, detail);
  event.pool.generation = generation;
  return event;
}

TEST(ToldFailures, OfPoolsThatDidNotStartWhoDiedBesideMakesNoDifference) {
  ToldFailures told;
  EXPECT_EQ(told.first_like(not_started(1, "rank 0 died: exit 1; last words of rank 0: port 4711 is taken")), "");
  EXPECT_EQ(told.first_like(
                not_started(2, "rank 1 died: exit 1; rank 0 died: exit 1; last words of rank 0: port 12 is taken")),
            "cpu/2 #1");
  EXPECT_EQ(told.first_like(not_started(3, "rank 0 died: exit 1; last words of rank 0: no memory")), "");
  EXPECT_EQ(told.untold_part(
                "the pool failed to start 3 times running: rank 0 died: exit 1; last words of rank 0: no memory"),
            "the pool failed to start 3 times running");
  EXPECT_EQ(told.untold_part("the pool cannot start: nobody knows"), "the pool cannot start: nobody knows");
  EXPECT_EQ(told.untold_part("3 cases running timed out"), "3 cases running timed out");
}

TEST(ToldFailures, SayWhyTheirPoolIsGivenUp) {
  ToldFailures told;
  const PoolRetired retired = test::pool_retired(RetireReason::crash, "rank 1 died: exit 3");
  EXPECT_FALSE(told.says_why(retired));
  told.first_like(test::finished(0, "a", CaseOutcome::crash, "rank 1 died: exit 3 (in forward)"));
  EXPECT_TRUE(told.says_why(retired));
  EXPECT_FALSE(told.says_why(test::pool_retired(RetireReason::crash, "rank 0 died: exit 3")));
}

}  // namespace
}  // namespace cp_pool
