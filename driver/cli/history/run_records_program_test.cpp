// Records of runs, as the real program keeps and shows them.
#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool {
namespace {

using test::Finished;
using test::json_lines;
using test::kProgram;
using test::Program;
using test::read_file;
using test::Words;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

class RecordsOfRuns : public test::CommandLine {
 protected:
  [[nodiscard]] nlohmann::json runs() {
    const Finished done = call({"runs", "--json", "--record-dir", path("runs")});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return nlohmann::json::parse(done.out);
  }
  [[nodiscard]] Words recorded(const Words& more = {}) const {
    Words words{"--record-dir", path("runs")};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(RecordsOfRuns, AreListedAndShown) {
  ASSERT_EQ(run("model=pass | model=fail", recorded({"--events", path("e")})).exit_code, 100);
  ASSERT_EQ(run("model=pass", recorded({"--no-record"})).exit_code, 0);
  const nlohmann::json all = runs();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0]["state"], "ended");
  EXPECT_EQ(all[0]["exit_code"], 100);
  EXPECT_EQ(all[0]["counts"]["fail"], 1);
  EXPECT_THAT(std::string{all[0]["command"]}, StartsWith("cp-pool run "));
  const auto recorded_events = json_lines(read_file(std::string{all[0]["events"]}));
  const auto events = json_lines(read_file(path("e")));
  ASSERT_EQ(recorded_events.size(), events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    nlohmann::json one = events[i];
    nlohmann::json other = recorded_events[i];
    for (nlohmann::json* line : {&one, &other}) line->erase("ts");
    EXPECT_EQ(one, other);
  }
  struct stat status{};
  ASSERT_EQ(::stat(path("runs").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);

  const Finished shown = call({"show", "--record-dir", path("runs")});
  EXPECT_EQ(shown.exit_code, 100) << shown.err;
  EXPECT_THAT(shown.last_line(), StartsWith("2 expanded = 1 pass + 1 fail, "));
  const Finished one = call({"show", "demo/fail/p2p/cp1/bshd/fp32", "--record-dir", path("runs")});
  EXPECT_THAT(one.out, AllOf(HasSubstr("demo/fail/p2p/cp1/bshd/fp32"), HasSubstr("dq")));
  EXPECT_THAT(one.last_line(), StartsWith("1 expanded = 0 pass + 1 fail"));
  EXPECT_EQ(call({"show", "last", "demo/none", "--record-dir", path("runs")}).exit_code, 94);
}

TEST_F(RecordsOfRuns, SayWhatFailedForARerun) {
  ASSERT_EQ(run("model=pass | model=fail", recorded()).exit_code, 100);
  const Finished again = run("*", recorded({"--rerun-failed", "last"}));
  EXPECT_EQ(again.exit_code, 100) << again.err;
  EXPECT_THAT(again.last_line(), StartsWith("1 expanded = 0 pass + 1 fail"));
  EXPECT_EQ(run("*", recorded({"--rerun-failed", "999999"})).exit_code, 94);
}

TEST_F(RecordsOfRuns, OfARunThatGoesOnAndOfOneThatIsKilledSaySo) {
  Words words = run_words("model=pass | model=hang", recorded({"--timeout", "10m"}));
  words.insert(words.begin(), kProgram);
  Program program{words};
  const auto hangs = [&] {
    const nlohmann::json all = runs();
    return all.size() == 1 && all[0]["counts"]["pass"] == 1;
  };
  while (!hangs()) ASSERT_TRUE(program.running());
  EXPECT_EQ(runs()[0]["state"], "running");
  EXPECT_EQ(run("model=pass", recorded({"--record-count", "1"})).exit_code, 0);
  EXPECT_THAT(runs(), SizeIs(2)) << "a run that goes on is not pruned";
  program.signal(SIGKILL);
  program.wait();
  EXPECT_EQ(runs()[0]["state"], "killed");
  EXPECT_EQ(runs()[0]["exit_code"], nullptr);
  EXPECT_EQ(run("model=pass", recorded({"--record-count", "1"})).exit_code, 0);
  EXPECT_THAT(runs(), SizeIs(1));
}

TEST_F(RecordsOfRuns, AtATimeDoNotCollide) {
  Words words = run_words("model=pass", recorded());
  words.insert(words.begin(), kProgram);
  {
    std::vector<std::unique_ptr<Program>> programs;
    for (int i = 0; i < 4; ++i) programs.push_back(std::make_unique<Program>(words));
    for (const auto& program : programs) EXPECT_EQ(program->wait().exit_code, 0);
  }
  const nlohmann::json all = runs();
  ASSERT_THAT(all, SizeIs(4));
  for (const nlohmann::json& each : all) EXPECT_EQ(each["counts"]["pass"], 1);
}

TEST_F(RecordsOfRuns, ThatCannotBeWrittenCostTheRunNothing) {
  const Finished refused = run("model=pass", {"--record-dir", "/proc/none/runs"});
  EXPECT_EQ(refused.exit_code, 0);
  EXPECT_THAT(refused.err, StartsWith("cp-pool: warning: this run is not recorded: cannot write /proc/none"));
  EXPECT_EQ(std::ranges::count(refused.err, '\n'), 1) << refused.err;
#ifndef __SANITIZE_THREAD__  // no program with its runtime starts under such a limit
  Words words{"bash", "-c", "exec 4>&1; { (ulimit -f 1; exec \"$@\" 2>&3) | cat >&4; } 3>&1 | cat >&2", "bash",
              kProgram};
  const Words of_run = run_words("model=pass*", recorded());
  words.insert(words.end(), of_run.begin(), of_run.end());
  const Finished full = Program{words}.wait();
  EXPECT_THAT(full.err, StartsWith("cp-pool: warning: this run is not recorded: cannot write " + path("runs")));
  EXPECT_THAT(full.last_line(), StartsWith("2 expanded = 2 pass"));
  EXPECT_THAT(runs(), SizeIs(1));
#endif
}

}  // namespace
}  // namespace cp_pool
