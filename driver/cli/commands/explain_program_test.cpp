// `cp-pool explain` on a case of a matrix.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool {
namespace {

using test::Finished;
using ::testing::AllOf;
using ::testing::HasSubstr;

using ExplainProgram = test::CommandLine;

TEST_F(ExplainProgram, ExplainDrawsACaseOfAMatrixWithItsEdits) {
  const Finished done = call({"explain", "demo/pass/p2p/cp1/bshd/fp32", "--matrix", path("demo.json"), "--set",
                              "cp_size=2", "--set", "causal=true"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("p2p of 2 ranks"), HasSubstr("       0 #............... 0\n"),
                              HasSubstr("visible pairs x 1 heads")));
  EXPECT_EQ(call({"explain", "no/such/case", "--matrix", path("demo.json")}).exit_code, 94);
}

}  // namespace
}  // namespace cp_pool
