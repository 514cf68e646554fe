// Tests --launcher with a worker that has no lifeline: the outcomes of its cases, and the reports of its end.
#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using LauncherProgram = CommandLine;

// A launcher that starts one rank.
const std::string kLauncher = "env RANK=0 WORLD_SIZE={world_size} {worker}";

TEST_F(LauncherProgram, CasesRunOnPoolsThatItStarts) {
  const Finished done = run("model=pass* | model=fail", {"--launcher", kLauncher, "--events", path("e")});
  EXPECT_EQ(done.exit_code, 100) << done.out << done.err;
  EXPECT_THAT(done.last_line(), StartsWith("3 expanded = 2 pass + 1 fail, "));
  EXPECT_THAT(done.out, HasSubstr("--launcher 'env RANK=0 WORLD_SIZE={world_size} {worker}'"));  // in the rerun command
  for (const auto& event : events_in(path("e"), "pool_retired")) {
    EXPECT_TRUE(event["leftovers"].empty()) << event.dump();
  }
}

TEST_F(LauncherProgram, ACrashIsToldByTheLaunchersExitAndTheNextCaseRunsOnANewPool) {
  const Finished done = run("model=crash | model=pass", {"--launcher", kLauncher, "--order", "reverse"});
  EXPECT_EQ(done.exit_code, 100) << done.out << done.err;
  EXPECT_THAT(done.last_line(), StartsWith("2 expanded = 1 pass + 0 fail + 1 crash, "));
  EXPECT_THAT(done.out, HasSubstr("env died: signal "));
}

TEST_F(LauncherProgram, ATimeoutEndsTheLauncher) {
  const Finished done =
      run("model=hang | model=pass", {"--launcher", kLauncher, "--timeout", "3s", "--order", "reverse"});
  EXPECT_EQ(done.exit_code, 100) << done.out << done.err;
  EXPECT_THAT(done.last_line(), StartsWith("2 expanded = 1 pass + 0 fail + 1 timeout, "));
}

TEST_F(LauncherProgram, OneThatIsNotThereIsNamed) {
  const Finished done = run("model=pass", {"--launcher", "/no/such/launcher {worker}"});
  EXPECT_EQ(done.exit_code, 96) << done.out << done.err;
  EXPECT_THAT(done.out, HasSubstr("cannot run \"/no/such/launcher\""));
}

TEST_F(LauncherProgram, WhatCannotBeOneIsRefused) {
  const Finished done = run("model=pass", {"--launcher", "go -n {ranks} {worker}"});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(done.err, is_one_error("there is no {ranks}"));
}

}  // namespace
}  // namespace cp_pool::test
