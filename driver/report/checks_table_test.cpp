#include "driver/report/checks_table.h"

#include <limits>

#include <gtest/gtest.h>

#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

TEST(ChecksTable, HasARowForEachTensorAndRank) {
  auto checks = test::failed_case(0, "id").checks;
  checks[1].message = "3 rows are wrong";
  EXPECT_EQ(checks_table(checks),
            "tensor     rank            error     bound  ratio  baseline   max_abs       rms  worst row\n"
            "out           0  ok        0.001     0.002   0.50     0.001     0.001    0.0001  [0, 1, 2]\n"
            "dq            1  WRONG     0.031     0.012   2.58     0.005      0.04     0.001  [0, 17, 3]  "
            "3 rows are wrong\n");
}

TEST(ChecksTable, GivesNoRatioThatIsNoNumber) {
  Check check;
  check.tensor = "lse";
  check.error = std::numeric_limits<double>::quiet_NaN();
  check.ok = false;
  EXPECT_EQ(checks_table({check}).substr(91),
            "lse           0  WRONG       nan         0      -         0         0         0  []\n");
}

TEST(ChecksTable, ShowsNoFiguresThatWereNotTold) {
  Check check;
  check.tensor = "lse";
  check.measured = false;
  EXPECT_EQ(checks_table({check}).substr(91),
            "lse           0  ok            -         -      -         0         0         0  []\n");
}

}  // namespace
}  // namespace cp_pool
