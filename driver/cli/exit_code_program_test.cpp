// Tests the exit codes of the real program, and its output for each.
#include <csignal>
#include <cstdio>
#include <thread>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

using ExitCodes = CommandLine;

TEST_F(ExitCodes, Exits0WhenEveryCasePassesOrIsSkippedAndTheLedgerIsTheLastLine) {
  EXPECT_THAT(run("model=pass* | model=skip"),
              exits(0, err(""), last_line(StartsWith("3 expanded = 2 pass + 0 fail + 1 skip, ")),
                    out(HasSubstr("1 skip: this worker skips it\n"))));
}

TEST_F(ExitCodes, Exits100ForEachKindOfFailureAndShowsWhatHappened) {
  EXPECT_THAT(run("model=fail"), exits(100,
                                       out(HasSubstr("rank 0: dq: error 0.5 > bound 0.25 at [0, 7, 1]"),
                                           HasSubstr("rank 0 stderr:\n      | stderr of demo/fail")),
                                       last_line(StartsWith("1 expanded = 0 pass + 1 fail, "))));

  EXPECT_THAT(run("model=error"), exits(100, out(HasSubstr("rank 0 error:\n      boom\n      at here")),
                                        last_line(HasSubstr("+ 1 error,"))));

  EXPECT_THAT(run("model=crash | model=pass"),
              exits(100, out(HasSubstr("SIGKILL"), HasSubstr("#1 given up")),
                    last_line(StartsWith("2 expanded = 1 pass + 0 fail + 1 crash, "))));

  EXPECT_THAT(run("model=hang", {"--timeout", "300ms"}), exits(100, last_line(HasSubstr("+ 1 timeout,"))));
}

TEST_F(ExitCodes, Exits96WithOneLineForAMissingWorkerAndStillReports) {
  EXPECT_THAT(
      run("model=pass*", {"--worker", "/no/such/worker", "--junit", path("j.xml")}),
      exits(96, err(is_one_error("/no/such/worker")), last_line(StartsWith("2 expanded = 0 pass + 0 fail + 2 infra, ")),
            out(HasSubstr("pool cpu/1 #1 did not start: cannot run \"/no/such/worker\""),
                HasSubstr("2 infra (not run): the pool cannot start\n"), Not(HasSubstr("demo/pass")))))
      << "no line a case";
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
           {{"submit", "--matrix", path("demo.json"), "demo/psas/p2p/cp1/bshd/fp32"}, kPass}}) {
    EXPECT_THAT(call(words), exits(94, err(is_one_error(part)), out(""))) << part;
  }
}

TEST_F(ExitCodes, Exits94ForABadFilterWithACaretUnderThePlace) {
  EXPECT_THAT(run("comm=p2p & nonsense=1"),
              exits(94, err(StartsWith("cp-pool: error: "), HasSubstr("nonsense"), HasSubstr("^"))));
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
    EXPECT_THAT(call(words), exits(2, err(is_one_error("")), out(""))) << ::testing::PrintToString(words);
  }
}

TEST_F(ExitCodes, Exits4WhenNothingIsSelectedAndNamesTheFilter) {
  for (const std::string command : {"run", "list"}) {
    EXPECT_THAT(call({command, "--matrix", path("demo.json"), "--filter", "demo/none/*"}),
                exits(4, err(HasSubstr("cp-pool: warning: the filter 'demo/none/*' selects no case\n"),
                             HasSubstr("cp-pool: error: no case of"))));
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
    while (!has_text(path("e.jsonl"), "\"case_started\",\"index\":2")) std::this_thread::yield();
    program.signal(signal);
    EXPECT_THAT(program.wait(), exits(130, out(HasSubstr("interrupted: the run was stopped before its end")),
                                      last_line(StartsWith("3 expanded = 1 pass + 0 fail + 1 skip + 1 cancelled, "))));
    EXPECT_THAT(read_file(path("j.xml")), AllOf(HasSubstr("tests=\"3\""), HasSubstr("cancelled")));
    EXPECT_EQ(json_lines(read_file(path("e.jsonl"))).back()["type"], "run_finished");
  }
}

TEST_F(ExitCodes, HelpAndVersionAreNoErrors) {
  EXPECT_EQ(call({"--version"}).out, "cp-pool " CP_POOL_VERSION "\n");
  EXPECT_THAT(call({"submit", "--help"}), exits(0, out(HasSubstr("Usage: cp-pool submit"))));
}

}  // namespace
}  // namespace cp_pool::test
