// Tests which cases `cp-pool run` runs, in which order and for how long, and its requests to the worker.
#include <cstdio>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

using RunProgram = CommandLine;

TEST_F(RunProgram, FailFastLeavesTheRestNotRun) {
  EXPECT_THAT(run("model=fail | model=skip", {"--fail-fast"}),
              exits(100, last_line(StartsWith("2 expanded = 0 pass + 1 fail + 1 not-run, "))));
}

TEST_F(RunProgram, AWorkerThatKnowsNeitherCancelNorSigusr2TimesOutAtTheGlobalTimeout) {
  EXPECT_THAT(run("model=hang | model=pass", {"--global-timeout", "5s", "--order", "reverse"}),
              exits(100, out(HasSubstr("still running at the end of the run's 5000 ms (--global-timeout)")),
                    last_line(StartsWith("2 expanded = 0 pass + 0 fail + 1 timeout + 1 not-run, "))));
}

TEST_F(RunProgram, DeterministicIsAskedOfEveryCaseAndItsRerun) {
  ASSERT_EQ(run("model=fail", {"--deterministic", "--events", path("e")}).exit_code, 100);
  for (const auto& line : events_in(path("e"), "case_finished")) {
    EXPECT_TRUE(line["case"]["deterministic"].get<bool>());
    EXPECT_THAT(line["rerun"].get<std::string>(), HasSubstr(" --deterministic"));
  }
}

TEST_F(RunProgram, OrderAndRepeatDecideWhatRunsWhen) {
  const Finished done = run("model=pass* | model=skip", {"--order", "reverse", "--repeat", "2", "--events", path("e")});
  EXPECT_THAT(done.last_line(), StartsWith("6 expanded = 4 pass + 0 fail + 2 skip"));
  EXPECT_THAT(done.out, HasSubstr("2 repeated: every run gave the same output bits\n"));
  std::vector<std::string> models;
  for (const auto& line : events_in(path("e"), "case_finished")) models.push_back(line["case"]["model"]);
  EXPECT_THAT(models, ElementsAre("skip", "pass_2", "pass", "skip", "pass_2", "pass"));
}

TEST_F(RunProgram, TheOrderOfAHistoryBeginsWithWhatFailedInItsFileWhichTheRunMayReplace) {
  ASSERT_EQ(run("model=pass* | model=fail", {"--events", path("e")}).exit_code, 100);
  const std::string order = "history:" + path("e");
  const Finished done = run("model=pass* | model=fail", {"--order", order, "--events", path("e")});
  EXPECT_THAT(done.out, HasSubstr("--order " + order));
  std::vector<std::string> models;
  for (const auto& line : events_in(path("e"), "case_finished")) models.push_back(line["case"]["model"]);
  ASSERT_EQ(models.size(), 3);
  EXPECT_EQ(models.front(), "fail");

  EXPECT_THAT(run("model=pass", {"--order", "history:" + path("none")}), refuses(94, path("none")));
}

TEST_F(RunProgram, IsolateGivesEachCaseItsOwnPool) {
  EXPECT_THAT(run("model=pass*", {"--isolate", "--events", path("e")}), exits(0));
  std::vector<int> generations;
  for (const auto& line : events_in(path("e"), "case_finished")) generations.push_back(line["pool"]["generation"]);
  EXPECT_THAT(generations, ElementsAre(1, 2));
}

TEST_F(RunProgram, AShardIsOneOfWhatWasSelectedAndSaysSo) {
  EXPECT_THAT(run("model=pass* | model=skip", {"--shard", "2/2", "--events", path("e")}),
              exits(0, out(HasSubstr("demo.json, shard 2/2 ")), last_line(StartsWith("1 expanded"))));
  EXPECT_THAT(run("model=pass", {"--shard", "2/2"}),
              exits(4, err(HasSubstr("no case is in shard 2/2: there are fewer than 2"))));
}

TEST_F(RunProgram, WithNoSkipASkippedCaseIsNoSuccess) {
  EXPECT_EQ(run("model=pass | model=skip").exit_code, 0);
  EXPECT_THAT(run("model=pass | model=skip", {"--no-skip"}),
              exits(96, err(is_one_error("1 case skipped, with --no-skip")),
                    last_line(StartsWith("2 expanded = 1 pass + 0 fail + 1 skip"))));
  EXPECT_EQ(run("model=pass", {"--no-skip"}).exit_code, 0);
}

TEST_F(RunProgram, TheWorkerAndTheMatricesOfAnInstallationAreFoundBesideTheProgram) {
  std::filesystem::create_directories(folder / "bin");
  std::filesystem::create_directories(folder / "share/cp-pool/matrices");
  std::filesystem::copy(kProgram, folder / "bin/cp-pool");
  std::filesystem::copy(path("demo.json"), folder / "share/cp-pool/matrices/mine.json");
  write_file(path("bin/cp-pool-worker"), "#!/bin/sh\nexec " + kWorker + "\n");
  std::filesystem::permissions(folder / "bin/cp-pool-worker", std::filesystem::perms::owner_all);
  EXPECT_THAT(run_to_end({path("bin/cp-pool"), "run", "--matrix", "mine", "--filter", "model=pass"}),
              exits(0, last_line(StartsWith("1 expanded = 1 pass"))));
}

TEST_F(RunProgram, TheWorkerIsToldNotToKeepReferences) {
  const ScopedVariable requests{"CP_POOL_TEST_REQUESTS", path("requests").c_str()};
  const auto asked_for_cache = [&](const Words& words) {
    write_file(path("requests"), "");
    EXPECT_EQ(call(words).exit_code, 0);
    return json_lines(read_file(path("requests"))).at(0)["options"]["reference_cache"].get<bool>();
  };
  const Words submit = {"submit", kPass, "--matrix", path("demo.json"), "--worker", kWorker};
  EXPECT_TRUE(asked_for_cache(run_words("model=pass")));
  EXPECT_FALSE(asked_for_cache(run_words("model=pass", {"--no-reference-cache"})));
  EXPECT_TRUE(asked_for_cache(submit));
  Words without = submit;
  without.emplace_back("--no-reference-cache");
  EXPECT_FALSE(asked_for_cache(without));
}

TEST_F(RunProgram, TheWorkerIsToldWhereToDump) {
  const ScopedVariable requests{"CP_POOL_TEST_REQUESTS", path("requests").c_str()};
  EXPECT_EQ(run("model=pass", {"--dump", path("tensors")}).exit_code, 0);
  EXPECT_EQ(json_lines(read_file(path("requests"))).at(0)["options"]["dump_dir"], path("tensors"));
}

TEST_F(RunProgram, ASentinelInALineOfAnEarlierTimeIsNotBlamed) {
  const ScopedVariable chatter{"CP_POOL_TEST_CHATTER", "log: answers begin with [CP_POOL_RESP]"};
  const Finished done = run("model=pass | model=hang", {"--timeout", "2000ms"});
  EXPECT_THAT(done.out, AllOf(HasSubstr("no result within 2000 ms"), Not(HasSubstr("has the sentinel"))));
}

}  // namespace
}  // namespace cp_pool::test
