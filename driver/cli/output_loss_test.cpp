// The real program when outputs fail during the run: each is named once, the run goes on, and the exit code is 73.
#include <cstdio>
#include <iterator>
#include <sys/stat.h>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

class OutputLoss : public CommandLine {
 protected:
  // Runs the program in a shell that has carried out `first`. Its stdout and stderr go through pipes, which a limit on
  // file sizes does not affect.
  Finished run_after(const std::string& first, const std::string& filter, const Words& more) {
    Words words{"bash", "-c",
                "exec 4>&1; set -o pipefail; { (" + first + "; exec \"$@\" 2>&3) | cat >&4; } 3>&1 | cat >&2", "bash",
                kProgram};
    std::ranges::copy(run_words(filter, more), std::back_inserter(words));
    return run_to_end(words);
  }
};

TEST_F(OutputLoss, AFileThatMayNotGrowIsNamedOnceAndTheRunGoesOn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "no program with its runtime starts under such a limit";
#endif
  for (const std::string option : {"--events", "--junit", "--html", "--summary", "--trace-run", "--run-dir"}) {
    const Finished done = run_after("ulimit -f 0", "model=pass*", {option, path("out"), "--no-record"});
    EXPECT_EQ(done.exit_code, 73) << option;
    EXPECT_THAT(done.err, AllOf(is_one_error("cannot write " + path("out")), EndsWith(": File too large\n"))) << option;
    EXPECT_THAT(done.last_line(), StartsWith("2 expanded = 2 pass")) << option;
    std::filesystem::remove_all(path("out"));
  }
}

TEST_F(OutputLoss, AFolderThatIsRemovedMeanwhileIsNamedOnceAndTheRunGoesOn) {
  for (const std::string option : {"--events", "--junit", "--html", "--summary", "--trace-run", "--run-dir"}) {
    std::filesystem::create_directory(path("d"));
    const ScopedVariable remove{"CP_POOL_TEST_REMOVE", path("d").c_str()};
    const Finished done = run("model=pass*", {option, path("d/out")});
    EXPECT_EQ(done.exit_code, 73) << option;
    EXPECT_THAT(done.err, is_one_error("cannot write " + path("d/out"))) << option;
    EXPECT_THAT(done.last_line(), StartsWith("2 expanded = 2 pass")) << option;
  }
}

TEST_F(OutputLoss, LogsThatCannotBeMadeEndNoPool) {
  std::filesystem::create_directory(path("d"));
  const ScopedVariable remove{"CP_POOL_TEST_REMOVE", path("d").c_str()};
  const Finished done =
      run("model=pass* | model=skip", {"--isolate", "--run-dir", path("d/logs"), "--events", path("e")});
  EXPECT_THAT(done, exits(73, err(is_one_error("--run-dir: cannot write " + path("d/logs"))),
                          last_line(StartsWith("3 expanded = 2 pass + 0 fail + 1 skip"))));
  EXPECT_THAT(events_in(path("e"), "output_lost"), SizeIs(1));
  const Finished report = call({"report", path("e")});
  EXPECT_EQ(report.exit_code, 0) << "the cases are as they were: " << report.err;
}

TEST_F(OutputLoss, WhatTheWorkerCouldNotWriteIsNamedOnceAndChangesNoOutcome) {
  for (const std::string output : {"dump", "trace"}) {
    const ScopedVariable lost{"CP_POOL_TEST_LOST", output.c_str()};
    EXPECT_THAT(run("model=pass*"),
                exits(73, err(is_one_error("--" + output + ": cannot write /d/x: No space left on device\n")),
                      last_line(StartsWith("2 expanded = 2 pass"))));
    EXPECT_EQ(run("model=fail").exit_code, 100) << "which comes first";
  }
}

// --- A reader that goes away -----------------------------------------------------------------------------------------

class ReaderOfStdout : public CommandLine {
 protected:
  void SetUp() override {
    CommandLine::SetUp();
    ASSERT_EQ(::mkfifo(path("out").c_str(), 0600), 0);
  }

  // Starts the program, reads the first line that it prints, and goes away.
  Finished read_one_line_of(Words words, const std::string& in = "/dev/null") {
    words.insert(words.begin(), kProgram);
    Program program{words, {.in = in, .out = path("out")}};
    FILE* reader = std::fopen(path("out").c_str(), "r");
    for (int c = 0; (c = std::fgetc(reader)) != '\n' && c != EOF;) continue;
    std::fclose(reader);
    return program.wait();
  }
};

TEST_F(ReaderOfStdout, WhoIsGoneEndsTheRun) {
  // The case hangs longer than the test may run, so waiting for its end would be too late.
  const Words words = run_words("model=hang", {"--timeout", "10m"});
  EXPECT_THAT(read_one_line_of(words), refuses(73, "cannot write stdout: Broken pipe"));
}

TEST_F(ReaderOfStdout, WhoIsGoneAfterAFailureLeavesItsExitCode) {
  const Finished done = read_one_line_of(run_words("model=fail | model=hang", {"--timeout", "10m", "--no-progress"}));
  EXPECT_EQ(done.exit_code, 100);
}

TEST_F(ReaderOfStdout, WhoIsGoneEndsAStream) {
  ASSERT_EQ(::mkfifo(path("in").c_str(), 0600), 0);
  Program program{{kProgram, "submit", "-", "--json", "--worker", kWorker}, {.in = path("in"), .out = path("out")}};
  FILE* to = std::fopen(path("in").c_str(), "w");
  FILE* from = std::fopen(path("out").c_str(), "r");
  std::fputs((case_of("pass") + "\n").c_str(), to);
  std::fflush(to);
  for (int c = 0; (c = std::fgetc(from)) != '\n' && c != EOF;) continue;
  std::fclose(from);
  const Finished done = program.wait();  // although its stdin is still open
  std::fclose(to);
  EXPECT_THAT(done, refuses(73, "cannot write stdout: Broken pipe"));
}

TEST_F(ReaderOfStdout, WhoIsGoneLeavesTheRunToItsOtherOutputs) {
  for (const std::string option :
       {"--events", "--junit", "--html", "--summary", "--trace-run", "--run-dir", "--dump"}) {
    const Finished done = read_one_line_of(run_words("model=pass*", {option, path("o" + option)}));
    EXPECT_EQ(done.exit_code, 73) << option;
    EXPECT_THAT(done.err, is_one_error("cannot write stdout: Broken pipe")) << option;
    EXPECT_TRUE(std::filesystem::exists(path("o" + option))) << option;
  }
  EXPECT_EQ(json_lines(read_file(path("o--events"))).back()["counts"]["pass"], 2);
}

}  // namespace
}  // namespace cp_pool::test
