// Tests the exit codes of the real program, and its output for each.
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <utility>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

using ExitCodes = CommandLine;

TEST_F(ExitCodes, Exits0WhenEveryCasePassesOrIsSkippedAndTheLedgerIsTheLastLine) {
  const Finished run_of = run("model=pass* | model=skip");
  EXPECT_EQ(run_of.exit_code, 0) << run_of.out << run_of.err;
  EXPECT_EQ(run_of.err, "");
  EXPECT_THAT(run_of.last_line(), StartsWith("3 expanded = 2 pass + 0 fail + 1 skip, "));
  EXPECT_THAT(run_of.out, HasSubstr("1 skip: this worker skips it\n"));
}

TEST_F(ExitCodes, Exits100ForEachKindOfFailureAndShowsWhatHappened) {
  const Finished failed = run("model=fail");
  EXPECT_EQ(failed.exit_code, 100);
  EXPECT_THAT(failed.out, HasSubstr("rank 0: dq: error 0.5 > bound 0.25 at [0, 7, 1]"));
  EXPECT_THAT(failed.out, HasSubstr("rank 0 stderr:\n      | stderr of demo/fail"));
  EXPECT_THAT(failed.last_line(), StartsWith("1 expanded = 0 pass + 1 fail, "));

  const Finished error = run("model=error");
  EXPECT_EQ(error.exit_code, 100);
  EXPECT_THAT(error.out, HasSubstr("rank 0 error:\n      boom\n      at here"));
  EXPECT_THAT(error.last_line(), HasSubstr("+ 1 error,"));

  const Finished crash = run("model=crash | model=pass");
  EXPECT_EQ(crash.exit_code, 100);
  EXPECT_THAT(crash.out, AllOf(HasSubstr("SIGKILL"), HasSubstr("#1 given up")));
  EXPECT_THAT(crash.last_line(), StartsWith("2 expanded = 1 pass + 0 fail + 1 crash, "));

  const Finished timeout = run("model=hang", {"--timeout", "300ms"});
  EXPECT_EQ(timeout.exit_code, 100);
  EXPECT_THAT(timeout.last_line(), HasSubstr("+ 1 timeout,"));
}

TEST_F(ExitCodes, Exits96WithOneLineForAMissingWorkerAndStillReports) {
  const Finished run_of = run("model=pass*", {"--worker", "/no/such/worker", "--junit", path("j.xml")});
  EXPECT_EQ(run_of.exit_code, 96);
  EXPECT_THAT(run_of.err, is_one_error("/no/such/worker"));
  EXPECT_THAT(run_of.last_line(), StartsWith("2 expanded = 0 pass + 0 fail + 2 infra, "));
  EXPECT_THAT(run_of.out, AllOf(HasSubstr("pool cpu/1 #1 did not start: cannot run \"/no/such/worker\""),
                                HasSubstr("2 infra (not run): the pool cannot start\n")));
  EXPECT_THAT(run_of.out, Not(HasSubstr("demo/pass"))) << "no line a case";
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr("errors=\"2\""));
}

TEST_F(ExitCodes, Exits94WithOneLineForABadMatrixCaseOrFilter) {
  write_file(path("broken.json"), "{\"suite\":");
  write_file(path("unknown_key.json"), R"({"suite":"x","modles":{}})");
  write_file(path("case.json"), R"({"heads":"four"})");
  for (const auto& [words, part] : std::vector<std::pair<Words, std::string>>{
           {{"run", "--matrix", path("broken.json")}, "broken.json"},
           {{"run", "--matrix", path("unknown_key.json")}, "modles"},
           {{"run", "--matrix", path("missing.json")}, "missing.json"},
           {{"run", "--matrix", "no-such-name"}, "no-such-name"},
           {{"run", "--matrix", path("demo.json"), "--size", "huge"}, "huge"},
           {{"list", "--matrix", path("demo.json"), path("demo.json")}, "demo.json is given twice"},
           {{"submit", path("case.json")}, "$.heads"},
           {{"submit", path("no-such-case.json")}, "no-such-case.json"},
           {{"submit", "--matrix", path("demo.json"), "demo/psas/p2p/cp1/bshd/fp32"}, "demo/pass/p2p/cp1/bshd/fp32"}}) {
    const Finished done = call(words);
    EXPECT_EQ(done.exit_code, 94) << part;
    EXPECT_THAT(done.err, is_one_error(part));
    EXPECT_EQ(done.out, "");
  }
}

TEST_F(ExitCodes, Exits94ForABadFilterWithACaretUnderThePlace) {
  const Finished done = run("comm=p2p & nonsense=1");
  EXPECT_EQ(done.exit_code, 94);
  EXPECT_THAT(done.err, AllOf(StartsWith("cp-pool: error: "), HasSubstr("nonsense"), HasSubstr("^")));
}

TEST_F(ExitCodes, Exits2ForABadCommandLine) {
  for (const Words& words :
       std::vector<Words>{{},
                          {"fly"},
                          {"run", "--speed"},
                          {"run", "--timeout", "soon"},
                          {"run", "--worker", "'open"},
                          {"submit"},
                          {"run", "--junit", ""},
                          {"run", "--mode", "perf", "--trace", ""},
                          run_words("model=pass", {"--events", path("a"), "--junit", path("./a")}),
                          run_words("model=pass", {"--html", path("a"), "--junit", path("./a")})}) {
    const Finished done = call(words);
    EXPECT_EQ(done.exit_code, 2) << ::testing::PrintToString(words);
    EXPECT_THAT(done.err, is_one_error(""));
    EXPECT_EQ(done.out, "");
  }
}

TEST_F(ExitCodes, Exits4WhenNothingIsSelectedAndNamesTheFilter) {
  for (const std::string command : {"run", "list"}) {
    const Finished done = call({command, "--matrix", path("demo.json"), "--filter", "demo/none/*"});
    EXPECT_EQ(done.exit_code, 4);
    EXPECT_THAT(done.err, AllOf(HasSubstr("cp-pool: warning: the filter 'demo/none/*' selects no case\n"),
                                HasSubstr("cp-pool: error: no case of")));
  }
}

TEST_F(ExitCodes, Exits130WhenInterruptedAndReportsWhatHappened) {
  Words words =
      program_words("model=pass | model=hang | model=skip", {"--events", path("e.jsonl"), "--junit", path("j.xml")});
  std::signal(SIGHUP, SIG_DFL);  // under nohup it is ignored, also by children
  for (const int signal : {SIGINT, SIGHUP}) {
    std::filesystem::remove(path("e.jsonl"));
    std::filesystem::remove(path("j.xml"));
    Program program{words};
    // The hang is the last case to start, so the test waits for its line in the events file.
    while (!std::filesystem::exists(path("e.jsonl")) ||
           read_file(path("e.jsonl")).find("\"case_started\",\"index\":2") == std::string::npos) {
      std::this_thread::yield();
    }
    program.signal(signal);
    const Finished done = program.wait();
    EXPECT_EQ(done.exit_code, 130);
    EXPECT_THAT(done.out, HasSubstr("interrupted: the run was stopped before its end"));
    EXPECT_THAT(done.last_line(), StartsWith("3 expanded = 1 pass + 0 fail + 1 skip + 1 cancelled, "));
    EXPECT_THAT(read_file(path("j.xml")), AllOf(HasSubstr("tests=\"3\""), HasSubstr("cancelled")));
    EXPECT_EQ(json_lines(read_file(path("e.jsonl"))).back()["type"], "run_finished");
  }
}

TEST_F(ExitCodes, HelpAndVersionAreNoErrors) {
  EXPECT_EQ(call({"--version"}).out, "cp-pool " CP_POOL_VERSION "\n");
  const Finished help = call({"submit", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Usage: cp-pool submit"));
}

}  // namespace
}  // namespace cp_pool::test
