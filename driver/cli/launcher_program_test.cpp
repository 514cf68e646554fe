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
  EXPECT_THAT(done, exits(100, last_line(StartsWith("3 expanded = 2 pass + 1 fail, "))));
  EXPECT_THAT(done.out, HasSubstr("--launcher 'env RANK=0 WORLD_SIZE={world_size} {worker}'"));  // in the rerun command
  for (const auto& event : events_in(path("e"), "pool_retired")) {
    EXPECT_TRUE(event["leftovers"].empty()) << event.dump();
  }
}

TEST_F(LauncherProgram, ACrashIsToldByTheLaunchersExitAndTheNextCaseRunsOnANewPool) {
  EXPECT_THAT(run("model=crash | model=pass", {"--launcher", kLauncher, "--order", "reverse"}),
              exits(100, last_line(StartsWith("2 expanded = 1 pass + 0 fail + 1 crash, ")),
                    out(HasSubstr("env died: signal "))));
}

TEST_F(LauncherProgram, ATimeoutEndsTheLauncher) {
  const Finished done =
      run("model=hang | model=pass", {"--launcher", kLauncher, "--timeout", "3s", "--order", "reverse"});
  EXPECT_THAT(done, exits(100, last_line(StartsWith("2 expanded = 1 pass + 0 fail + 1 timeout, "))));
}

TEST_F(LauncherProgram, OneThatIsNotThereIsNamed) {
  EXPECT_THAT(run("model=pass", {"--launcher", "/no/such/launcher {worker}"}),
              exits(96, out(HasSubstr("cannot run \"/no/such/launcher\""))));
}

TEST_F(LauncherProgram, WhatCannotBeOneIsRefused) {
  EXPECT_THAT(run("model=pass", {"--launcher", "go -n {ranks} {worker}"}), refuses(2, "there is no {ranks}"));
}

}  // namespace
}  // namespace cp_pool::test
