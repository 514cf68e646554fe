#include "driver/cli/execution.h"

#include <gtest/gtest.h>

#include "driver/core/exit_code.h"
#include "driver/testing/attention.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool {
namespace {

Item ranks(const std::string& id, int cp_size, int group = 1) {
  Item named{.id = id};
  test::attention(named.payload).cp_size = cp_size;
  test::attention(named.payload).group = group;
  return named;
}

// Returns the error of these faults for a case of two ranks and one of two groups of two; empty if there is none.
std::string inject_error(const char* faults) {
  const test::ScopedVariable variable{"CP_POOL_INJECT", faults};
  try {
    expect_injected_ranks({ranks("small/p2p", 2), ranks("large/a2a", 2, 2)});
  } catch (const CommandError& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    return e.what();
  }
  return "";
}

TEST(InjectedFaults, HaveARankThatACaseHas) {
  EXPECT_EQ(inject_error("throw@1:inside wrong=dq@3:inside"), "");
  EXPECT_EQ(inject_error("throw@1:inside throw@4:inside"),
            "CP_POOL_INJECT: throw@4:inside: no selected case has a rank 4; the largest that it names has 4 ranks");
  EXPECT_EQ(inject_error("throw@3:inside:large/*"), "");
  EXPECT_EQ(inject_error("throw@3:inside:small/*"),
            "CP_POOL_INJECT: throw@3:inside:small/*: no selected case has a rank 3; the largest that it names has 2 "
            "ranks");
  EXPECT_EQ(inject_error("throw@0:inside:medium/*"),
            "CP_POOL_INJECT: throw@0:inside:medium/*: no selected case matches medium/*");
}

TEST(InjectedFaults, ThatCannotBeReadAreLeftToTheWorker) {
  for (const char* faults : {"", "throw", "throw@9", "throw@x:inside", "throw@99999999999:inside"}) {
    EXPECT_EQ(inject_error(faults), "") << faults;
  }
}

}  // namespace
}  // namespace cp_pool
