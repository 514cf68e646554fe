#include "driver/process/filter.h"

#include <csignal>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/process/spawn.h"

namespace cp_pool {
namespace {

TEST(Filter, GivesTheInputAndTakesBothOutputs) {
  const Filtered done = run_filter({"sh", "-c", "cat; echo said >&2; exit 3"}, "one\ntwo\n");
  EXPECT_EQ(done.out, "one\ntwo\n");
  EXPECT_EQ(done.err, "said\n");
  EXPECT_EQ(done.exit, (ExitStatus{false, 3}));
}

TEST(Filter, WritesAndReadsMoreThanPipesHold) {
  const std::string input(std::size_t{3} << 20U, 'x');
  EXPECT_EQ(run_filter({"cat"}, input).out, input);
}

TEST(Filter, MayStopReading) {
  const std::string input(std::size_t{3} << 20U, 'x');
  const Filtered done = run_filter({"sh", "-c", "exec <&-; echo enough"}, input);
  EXPECT_EQ(done.out, "enough\n");
  EXPECT_EQ(done.exit, (ExitStatus{false, 0}));
}

TEST(Filter, MayDieOfASignal) {
  EXPECT_EQ(run_filter({"sh", "-c", "kill -9 $$"}, "").exit, (ExitStatus{true, SIGKILL}));
}

TEST(Filter, ThatIsMissingIsNamed) {
  EXPECT_THROW(run_filter({"/no/such/program"}, ""), SpawnError);
}

}  // namespace
}  // namespace cp_pool
