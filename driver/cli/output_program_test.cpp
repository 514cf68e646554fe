// Tests the outputs of the real program: files, pipes and devices, and its errors about those that it cannot write.
#include <cstdio>
#include <iterator>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using Outputs = CommandLine;

TEST_F(Outputs, Exits73ForAnUnwritableOutputBeforeAnyWorkerStarts) {
  write_file(path("file"), "");
  const ScopedVariable mark{"CP_POOL_TEST_MARK", path("mark").c_str()};
  for (const std::string option :
       {"--junit", "--events", "--html", "--summary", "--trace-run", "--run-dir", "--dump"}) {
    EXPECT_THAT(run("model=pass", {option, path("file/x")}), exits(73, err(is_one_error(path("file/x"))), out("")))
        << option;
  }
  EXPECT_EQ(run("model=pass", {"--mode", "perf", "--trace", path("file/x")}).exit_code, 73);
  EXPECT_FALSE(std::filesystem::exists(path("mark")));
  run("model=pass");
  EXPECT_TRUE(std::filesystem::exists(path("mark")));  // the check above would have seen the mark
}

TEST_F(Outputs, Exits73WhenAReportIsLostDuringTheRunAndFinishesTheOthers) {
  EXPECT_THAT(run("model=pass*", {"--events", "/dev/full", "--junit", path("j.xml")}),
              exits(73, err(is_one_error("cannot write /dev/full: No space left on device")),
                    last_line(StartsWith("2 expanded = 2 pass"))));
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr("tests=\"2\""));
}

TEST_F(Outputs, Exits73WhenStdoutCannotBeWritten) {
  Words words = program_words("model=pass");
  EXPECT_THAT(run_to_end(words, {.in = "/dev/null", .out = "/dev/full"}), refuses(73, "No space left on device"));
  const Finished list =
      run_to_end({kProgram, "list", "--matrix", path("demo.json")}, {.in = "/dev/null", .out = "/dev/full"});
  EXPECT_EQ(list.exit_code, 73);
}

TEST_F(Outputs, Exits73WhenItsFilesMayNotGrow) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "no program with its runtime starts under such a limit";
#endif
  Words words{"/bin/sh", "-c", "ulimit -f 0; exec \"$@\"", "sh", kProgram};
  std::ranges::copy(run_words("model=pass", {"--events", path("e.jsonl")}), std::back_inserter(words));
  EXPECT_EQ(run_to_end(words).exit_code, 73);
}

TEST_F(Outputs, BothReportsMayGoToADevice) {
  EXPECT_EQ(run("model=pass", {"--events", "/dev/null", "--junit", "/dev/null", "--html", "/dev/null"}).exit_code, 0);
}

// Otherwise the next file that is opened would become stdout, or a pipe of the event loop stdin.
TEST_F(Outputs, AStandardDescriptorThatIsClosedIsNoOther) {
  Words words{"/bin/sh", "-c", "exec \"$@\" >&-", "sh", kProgram};
  std::ranges::copy(run_words("model=pass", {"--events", path("e.jsonl")}), std::back_inserter(words));
  EXPECT_THAT(run_to_end(words), exits(73, err(HasSubstr("cannot write"))));
  EXPECT_EQ(json_lines(read_file(path("e.jsonl"))).back()["type"], "run_finished");
  const Finished submitted = run_to_end({"/bin/sh", "-c", "exec \"$@\" <&-", "sh", kProgram, "submit", "-"});
  EXPECT_THAT(submitted.last_line(), StartsWith("0 expanded"));
}

TEST_F(Outputs, AnOutputThatCannotBeWrittenLeavesTheEventsOfTheEarlierRun) {
  write_file(path("file"), "");
  for (const std::string option : {"--junit", "--html", "--summary", "--trace-run", "--run-dir", "--dump"}) {
    write_file(path("e"), R"({"v":1,"ts":"precious)");
    ASSERT_EQ(run("model=pass", {"--events", path("e"), option, path("file/x")}).exit_code, 73) << option;
    EXPECT_EQ(read_file(path("e")), R"({"v":1,"ts":"precious)") << option;
  }
}

TEST_F(Outputs, ReportsMayGoIntoPipes) {
  for (const std::string option : {"--events", "--junit", "--html"}) {
    Words words{"bash", "-c", "set -o pipefail; \"$@\" | cat", "bash", kProgram};
    std::ranges::copy(run_words("model=pass", {option, "/dev/stdout", "--no-progress"}), std::back_inserter(words));
    const Finished done = run_to_end(words);
    EXPECT_EQ(done.exit_code, 0) << option << done.err;
    EXPECT_THAT(done.out, HasSubstr(kPass)) << option;
  }
}

TEST_F(Outputs, ALinkThatLeadsNowhereIsNoOutput) {
  std::filesystem::create_symlink("loop", folder / "loop");
  EXPECT_EQ(run("model=pass", {"--events", path("loop")}).exit_code, 73);
}

}  // namespace
}  // namespace cp_pool::test
