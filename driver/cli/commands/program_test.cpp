// The real program with a scripted worker: exit codes, errors, reports.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <pty.h>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cases/testing/temporary_folder.h"
#include "driver/cli/testing/command_line_fixture.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool {
namespace {

using test::CommandLine;
using test::Finished;
using test::is_one_error;
using test::json_lines;
using test::kProgram;
using test::kSizes;
using test::kWorker;
using test::Program;
using test::read_file;
using test::ScopedVariable;
using test::Words;
using test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// --- Exit codes ------------------------------------------------------------------------------------------------------

TEST_F(CommandLine, Exits0WhenEveryCasePassesOrIsSkippedAndTheLedgerIsTheLastLine) {
  const Finished run_of = run("model=pass* | model=skip");
  EXPECT_EQ(run_of.exit_code, 0) << run_of.out << run_of.err;
  EXPECT_EQ(run_of.err, "");
  EXPECT_THAT(run_of.last_line(), StartsWith("3 expanded = 2 pass + 0 fail + 1 skip, "));
  EXPECT_THAT(run_of.out, HasSubstr("1 skip: this worker skips it\n"));
}

TEST_F(CommandLine, Exits100ForEachKindOfFailureAndShowsWhatHappened) {
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

TEST_F(CommandLine, FailFastLeavesTheRestNotRun) {
  const Finished run_of = run("model=fail | model=skip", {"--fail-fast"});
  EXPECT_EQ(run_of.exit_code, 100);
  EXPECT_THAT(run_of.last_line(), StartsWith("2 expanded = 0 pass + 1 fail + 1 not-run, "));
}

TEST_F(CommandLine, MaxFailCountsFailuresOnly) {
  const Finished done =
      run("model=pass* | model=fail | model=skip | model=error", {"--max-fail", "2", "--order", "reverse"});
  // reverse: error, skip, fail, then enough
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(done.last_line(), StartsWith("5 expanded = 0 pass + 1 fail + 1 skip + 1 error + 2 not-run, "));
  EXPECT_THAT(done.out, HasSubstr("2 not-run: not run after 2 failures (--max-fail)\n"));
}

TEST_F(CommandLine, Exits96WithOneLineForAMissingWorkerAndStillReports) {
  const Finished run_of = run("model=pass*", {"--worker", "/no/such/worker", "--junit", path("j.xml")});
  EXPECT_EQ(run_of.exit_code, 96);
  EXPECT_THAT(run_of.err, is_one_error("/no/such/worker"));
  EXPECT_THAT(run_of.last_line(), StartsWith("2 expanded = 0 pass + 0 fail + 2 infra, "));
  EXPECT_THAT(run_of.out, AllOf(HasSubstr("pool cpu/1 #1 did not start: cannot run \"/no/such/worker\""),
                                HasSubstr("2 infra (not run): the pool cannot start\n")));
  EXPECT_THAT(run_of.out, Not(HasSubstr("demo/pass"))) << "no line a case";
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr("errors=\"2\""));
}

TEST_F(CommandLine, Exits94WithOneLineForABadMatrixCaseOrFilter) {
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

TEST_F(CommandLine, Exits94ForABadFilterWithACaretUnderThePlace) {
  const Finished done = run("comm=p2p & nonsense=1");
  EXPECT_EQ(done.exit_code, 94);
  EXPECT_THAT(done.err, AllOf(StartsWith("cp-pool: error: "), HasSubstr("nonsense"), HasSubstr("^")));
}

TEST_F(CommandLine, Exits73ForAnUnwritableOutputBeforeAnyWorkerStarts) {
  write_file(path("file"), "");
  const ScopedVariable mark{"CP_POOL_TEST_MARK", path("mark").c_str()};
  for (const std::string option : {"--junit", "--events", "--html", "--run-dir", "--dump"}) {
    const Finished done = run("model=pass", {option, path("file/x")});
    EXPECT_EQ(done.exit_code, 73) << option;
    EXPECT_THAT(done.err, is_one_error(path("file/x")));
    EXPECT_EQ(done.out, "");
  }
  EXPECT_EQ(run("model=pass", {"--mode", "perf", "--trace", path("file/x")}).exit_code, 73);
  EXPECT_FALSE(std::filesystem::exists(path("mark")));
  run("model=pass");
  EXPECT_TRUE(std::filesystem::exists(path("mark")));  // the mark would have been seen
}

TEST_F(CommandLine, Exits73WhenAReportIsLostDuringTheRunAndFinishesTheOthers) {
  const Finished done = run("model=pass*", {"--events", "/dev/full", "--junit", path("j.xml")});
  EXPECT_EQ(done.exit_code, 73);
  EXPECT_THAT(done.err, is_one_error("cannot write /dev/full: No space left on device"));
  EXPECT_THAT(done.last_line(), StartsWith("2 expanded = 2 pass"));
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr("tests=\"2\""));
}

TEST_F(CommandLine, Exits73WhenStdoutCannotBeWritten) {
  Words words = run_words("model=pass");
  words.insert(words.begin(), kProgram);
  const Finished done = Program{words, {.in = "/dev/null", .out = "/dev/full"}}.wait();
  EXPECT_EQ(done.exit_code, 73);
  EXPECT_THAT(done.err, is_one_error("No space left on device"));
  const Finished list =
      Program{{kProgram, "list", "--matrix", path("demo.json")}, {.in = "/dev/null", .out = "/dev/full"}}.wait();
  EXPECT_EQ(list.exit_code, 73);
}

TEST_F(CommandLine, Exits73WhenItsFilesMayNotGrow) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "no program with its runtime starts under such a limit";
#endif
  Words words{"/bin/sh", "-c", "ulimit -f 0; exec \"$@\"", "sh", kProgram};
  std::ranges::copy(run_words("model=pass", {"--events", path("e.jsonl")}), std::back_inserter(words));
  EXPECT_EQ(Program{words}.wait().exit_code, 73);
}

TEST_F(CommandLine, BothReportsMayGoToADevice) {
  EXPECT_EQ(run("model=pass", {"--events", "/dev/null", "--junit", "/dev/null", "--html", "/dev/null"}).exit_code, 0);
}

TEST_F(CommandLine, Exits2ForABadCommandLine) {
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

TEST_F(CommandLine, Exits4WhenNothingIsSelectedAndNamesTheFilter) {
  for (const std::string command : {"run", "list"}) {
    const Finished done = call({command, "--matrix", path("demo.json"), "--filter", "demo/none/*"});
    EXPECT_EQ(done.exit_code, 4);
    EXPECT_THAT(done.err, AllOf(HasSubstr("cp-pool: warning: the filter 'demo/none/*' selects no case\n"),
                                HasSubstr("cp-pool: error: no case of")));
  }
}

TEST_F(CommandLine, Exits130WhenInterruptedAndReportsWhatHappened) {
  Words words =
      run_words("model=pass | model=hang | model=skip", {"--events", path("e.jsonl"), "--junit", path("j.xml")});
  words.insert(words.begin(), kProgram);
  std::signal(SIGHUP, SIG_DFL);  // under nohup it is ignored, and stays so
  for (const int signal : {SIGINT, SIGHUP}) {
    std::filesystem::remove(path("e.jsonl"));
    std::filesystem::remove(path("j.xml"));
    Program program{words};
    // The hang is the last case to start; waiting for its line in the events file is waiting for the event.
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

// Else the next file opened would be stdout, or what the event loop waits for stdin.
TEST_F(CommandLine, AStandardDescriptorThatIsClosedIsNoOther) {
  Words words{"/bin/sh", "-c", "exec \"$@\" >&-", "sh", kProgram};
  std::ranges::copy(run_words("model=pass", {"--events", path("e.jsonl")}), std::back_inserter(words));
  const Finished done = Program{words}.wait();
  EXPECT_EQ(done.exit_code, 73);
  EXPECT_THAT(done.err, HasSubstr("cannot write"));
  EXPECT_EQ(json_lines(read_file(path("e.jsonl"))).back()["type"], "run_finished");
  const Finished submitted = Program{{"/bin/sh", "-c", "exec \"$@\" <&-", "sh", kProgram, "submit", "-"}}.wait();
  EXPECT_THAT(submitted.last_line(), StartsWith("0 expanded"));
}

TEST_F(CommandLine, AWorkerThatKnowsNeitherCancelNorSigusr2TimesOutAtTheGlobalTimeout) {
  const Finished done = run("model=hang | model=pass", {"--global-timeout", "3s", "--order", "reverse"});
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(done.out, HasSubstr("still running at the end of the run's 3000 ms (--global-timeout)"));
  EXPECT_THAT(done.last_line(), StartsWith("2 expanded = 0 pass + 0 fail + 1 timeout + 1 not-run, "));
}

// --- Reports ---------------------------------------------------------------------------------------------------------

TEST_F(CommandLine, TheRerunCommandOfAFailureRerunsThatCaseAlone) {
  const Finished first = run("model=fail | model=pass | model=error");
  ASSERT_THAT(first.out, HasSubstr("    rerun: "));
  const std::size_t begin = first.out.find("    rerun: ") + std::string{"    rerun: "}.size();
  const std::string command = first.out.substr(begin, first.out.find('\n', begin) - begin);
  const Finished again = Program{{"sh", "-c", command}}.wait();
  EXPECT_EQ(again.exit_code, 100) << command << again.err;
  EXPECT_THAT(again.out, HasSubstr("fail  demo/fail/p2p/cp1/bshd/fp32 after"));
  EXPECT_THAT(again.last_line(), StartsWith("1 expanded = 0 pass + 1 fail, "));
}

TEST_F(CommandLine, WhatFailedIsRerunFromTheEventsOfTheRun) {
  const Words again = {"--rerun-failed", path("e"), "--events", path("e")};
  ASSERT_EQ(run("!model=hang", {"--events", path("e")}).exit_code, 100);
  const Finished some = run("!model=crash", again);  // of the three that failed
  EXPECT_EQ(some.exit_code, 100);
  EXPECT_EQ(some.err, "");
  EXPECT_THAT(some.last_line(), StartsWith("2 expanded = 0 pass + 1 fail + 1 error, "));
  EXPECT_THAT(run("*", again).last_line(), StartsWith("2 expanded = 0 pass + 1 fail + 1 error, "));
  const Finished none = run("model=crash", again);
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_THAT(none.err, is_one_error("of 2 cases that failed in " + path("e") + " none is selected"));
  ASSERT_EQ(run("model=pass | model=skip", {"--events", path("e")}).exit_code, 0);
  const Finished nothing = run("*", again);
  EXPECT_EQ(nothing.exit_code, 4);
  EXPECT_THAT(nothing.err, is_one_error("nothing failed in " + path("e") + ": its cases passed or were skipped"));
}

TEST_F(CommandLine, TheCommandAfterAListOfFailuresRerunsThem) {
  const Finished first = run("model=pass* | model=fail | model=error", {"--events", path("e"), "--no-progress"});
  ASSERT_THAT(first.out, HasSubstr("2 failed:\n  fail     demo/fail/p2p/cp1/bshd/fp32: dq is wrong\n"));
  const std::string lead = "\nrerun them: ";
  const std::size_t begin = first.out.find(lead) + lead.size();
  const std::string command = first.out.substr(begin, first.out.find('\n', begin) - begin);
  const Finished again = Program{{"sh", "-c", command}}.wait();
  EXPECT_THAT(again.last_line(), StartsWith("2 expanded = 0 pass + 1 fail + 1 error, ")) << command << again.err;
  EXPECT_THAT(again.out, Not(HasSubstr("rerun them"))) << "there is no events file of this run";
}

TEST_F(CommandLine, CasesToRerunThatNoMatrixHasAreNamed) {
  ASSERT_EQ(run("model=fail | model=error", {"--events", path("e"), "--size", "tiny"}).exit_code, 100);
  write_file(path("demo.json"),
             std::string{R"({"suite":"demo","defaults":{"cp_size":1,"comm":"p2p","layout":"bshd",)"} +
                 R"("dtype":"fp32",)" + kSizes + R"(},"models":{"fail":{}},"sizes":{"small":{}}})");
  const Finished done = run("*", {"--rerun-failed", path("e")});
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(done.last_line(), StartsWith("1 expanded = 0 pass + 1 fail, "));
  EXPECT_EQ(done.err, "cp-pool: warning: the cases of " + path("e") +
                          " were of size tiny, and now are of size small\n"
                          "cp-pool: warning: 1 of 2 cases that failed in " +
                          path("e") + " are in no matrix given (" + path("demo.json") +
                          "), such as demo/error/p2p/cp1/bshd/fp32; that run was of " + path("demo.json") + "\n");
  write_file(path("e"), "{\"type\":\"run_started\"}\nno event\n");
  const Finished bad = run("*", {"--rerun-failed", path("e")});
  EXPECT_EQ(bad.exit_code, 94);
  EXPECT_THAT(bad.err, is_one_error(path("e") + " is no events file of cp-pool run --events: line 2"));
}

TEST_F(CommandLine, CasesToRerunOfARunThatDidNotEndAreSaidToBePartOfThem) {
  write_file(path("e"), R"({"type":"run_started","title":"demo","size":"small"}
{"type":"case_finished","id":"demo/fail/p2p/cp1/bshd/fp32","outcome":"fail"}
)");
  const Finished done = run("*", {"--rerun-failed", path("e")});
  EXPECT_THAT(done.last_line(), StartsWith("1 expanded = 0 pass + 1 fail, "));
  EXPECT_EQ(done.err,
            "cp-pool: warning: " + path("e") +
                " ends before its run did: which cases it had not come to is not known, so they are not selected\n");
  write_file(path("e"), R"({"type":"run_started","title":"demo","size":"small"})"
                        "\n");
  const Finished nothing_known = run("*", {"--rerun-failed", path("e")});
  EXPECT_EQ(nothing_known.exit_code, 94) << "a loop until 4 would take it for the end";
}

TEST_F(CommandLine, ARerunThatWasKilledCanBeRerun) {
  ASSERT_EQ(run("model=fail | model=error | model=pass", {"--events", path("e")}).exit_code, 100);
  ASSERT_EQ(run("*", {"--rerun-failed", path("e"), "--events", path("e")}).exit_code, 100);
  const std::string events = read_file(path("e"));
  write_file(path("e"), events.substr(0, events.find('\n') + 1));
  const Finished done = run("*", {"--rerun-failed", path("e")});
  EXPECT_EQ(done.err, "");
  EXPECT_THAT(done.last_line(), StartsWith("2 expanded = 0 pass + 1 fail + 1 error, "));
}

TEST_F(CommandLine, CasesToRerunThatAreInNoMatrixGivenAreNoEnd) {
  ASSERT_EQ(run("model=fail", {"--events", path("e")}).exit_code, 100);
  EXPECT_EQ(call({"run", "--matrix", "quick", "--rerun-failed", path("e")}).exit_code, 94);
  EXPECT_EQ(call({"run", "--matrix", "quick", "--rerun-failed", path("e"), "--shard", "1/2"}).exit_code, 94);
  EXPECT_EQ(call({"run", "--matrix", path("demo.json"), "--rerun-failed", path("e"), "--shard", "2/2"}).exit_code, 4);
}

TEST_F(CommandLine, AnOutputThatCannotBeWrittenLeavesTheEventsOfTheEarlierRun) {
  write_file(path("file"), "");
  for (const std::string option : {"--junit", "--html", "--run-dir", "--dump"}) {
    write_file(path("e"), R"({"v":1,"ts":"precious)");
    ASSERT_EQ(run("model=pass", {"--events", path("e"), option, path("file/x")}).exit_code, 73) << option;
    EXPECT_EQ(read_file(path("e")), R"({"v":1,"ts":"precious)") << option;
  }
}

TEST_F(CommandLine, DeterministicIsAskedOfEveryCaseAndItsRerun) {
  ASSERT_EQ(run("model=fail", {"--deterministic", "--events", path("e")}).exit_code, 100);
  for (const auto& line : json_lines(read_file(path("e")))) {
    if (line["type"] != "case_finished") continue;
    EXPECT_TRUE(line["case"]["deterministic"].get<bool>());
    EXPECT_THAT(line["rerun"].get<std::string>(), HasSubstr(" --deterministic"));
  }
}

TEST_F(CommandLine, EventsJunitAndLedgerTellTheSameStory) {
  const Finished done = run("!model=hang", {"--events", path("e.jsonl"), "--junit", path("j.xml")});
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(done.last_line(), StartsWith("6 expanded = 2 pass + 1 fail + 1 skip + 1 error + 1 crash, "));
  const auto lines = json_lines(read_file(path("e.jsonl")));
  EXPECT_EQ(lines.front()["type"], "run_started");
  EXPECT_EQ(lines.back()["type"], "run_finished");
  EXPECT_EQ(lines.back()["counts"]["crash"], 1);
  EXPECT_EQ(lines.back()["exit_code"], 100);
  const auto finished = std::ranges::count_if(lines, [](const auto& line) { return line["type"] == "case_finished"; });
  EXPECT_EQ(finished, 6);
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr(R"(tests="6" failures="1" errors="2")"));
}

TEST_F(CommandLine, WithoutProgressOnlyFailuresAndSummaryAreShown) {
  const Finished done = run("model=pass | model=fail", {"--no-progress"});
  EXPECT_THAT(done.out, StartsWith("fail  demo/fail"));
}

TEST_F(CommandLine, ARepeatThatGivesOtherBitsIsAFailure) {
  const ScopedVariable hash{"CP_POOL_TEST_HASH", "seq"};
  EXPECT_EQ(run("model=pass").exit_code, 0);
  const Finished done = run("model=pass", {"--repeat", "3", "--junit", path("j.xml")});
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(done.last_line(), StartsWith("3 expanded = 1 pass + 2 fail"));
  EXPECT_THAT(done.out, AllOf(HasSubstr("other bits than those of its first run in this one, on rank 0"),
                              HasSubstr("1 of 1 repeated: other output bits\n")));
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr("failures=\"2\""));
  EXPECT_THAT(done.out, HasSubstr(" --repeat 3\n")) << "alone it cannot fail";
}

TEST_F(CommandLine, ReportsMayGoIntoPipes) {
  for (const std::string option : {"--events", "--junit", "--html"}) {
    Words words{"bash", "-c", "set -o pipefail; \"$@\" | cat", "bash", kProgram};
    std::ranges::copy(run_words("model=pass", {option, "/dev/stdout", "--no-progress"}), std::back_inserter(words));
    const Finished done = Program{words}.wait();
    EXPECT_EQ(done.exit_code, 0) << option << done.err;
    EXPECT_THAT(done.out, HasSubstr("demo/pass/p2p/cp1/bshd/fp32")) << option;
  }
}

TEST_F(CommandLine, ALinkThatLeadsNowhereIsNoOutput) {
  std::filesystem::create_symlink("loop", folder / "loop");
  EXPECT_EQ(run("model=pass", {"--events", path("loop")}).exit_code, 73);
}

TEST_F(CommandLine, OrderAndRepeatDecideWhatRunsWhen) {
  const Finished done = run("model=pass* | model=skip", {"--order", "reverse", "--repeat", "2", "--events", path("e")});
  EXPECT_THAT(done.last_line(), StartsWith("6 expanded = 4 pass + 0 fail + 2 skip"));
  EXPECT_THAT(done.out, HasSubstr("2 repeated: every run gave the same output bits\n"));
  std::vector<std::string> models;
  for (const auto& line : json_lines(read_file(path("e")))) {
    if (line["type"] == "case_finished") models.push_back(line["case"]["model"]);
  }
  EXPECT_THAT(models, ElementsAre("skip", "pass_2", "pass", "skip", "pass_2", "pass"));
}

TEST_F(CommandLine, IsolateGivesEachCaseItsOwnPool) {
  const Finished done = run("model=pass*", {"--isolate", "--events", path("e")});
  EXPECT_EQ(done.exit_code, 0);
  std::vector<int> generations;
  for (const auto& line : json_lines(read_file(path("e")))) {
    if (line["type"] == "case_finished") generations.push_back(line["pool"]["generation"]);
  }
  EXPECT_THAT(generations, ElementsAre(1, 2));
}

TEST_F(CommandLine, ShardsAreDisjointAndTogetherAllCases) {
  const auto listed = [&](const Words& more) {
    Words words = {"list", "--matrix", path("demo.json")};
    words.insert(words.end(), more.begin(), more.end());
    return call(words).out_lines();
  };
  const Words all = listed({});
  ASSERT_GE(all.size(), 4U);
  Words together;
  for (const char* shard : {"1/3", "2/3", "3/3"}) {
    const Words part = listed({"--shard", shard});
    EXPECT_GE(part.size(), all.size() / 3 - 1) << shard;
    EXPECT_TRUE(std::ranges::is_sorted(part, {}, [&](const std::string& id) { return std::ranges::find(all, id); }));
    together.insert(together.end(), part.begin(), part.end());
  }
  EXPECT_THAT(together, ::testing::UnorderedElementsAreArray(all));
}

TEST_F(CommandLine, AShardIsOneOfWhatWasSelectedAndSaysSo) {
  const Finished done = run("model=pass* | model=skip", {"--shard", "2/2", "--events", path("e")});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_THAT(done.out, HasSubstr("demo.json, shard 2/2 "));
  EXPECT_THAT(done.last_line(), StartsWith("1 expanded"));
  const Finished none = run("model=pass", {"--shard", "2/2"});
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_THAT(none.err, HasSubstr("no case is in shard 2/2: there are fewer than 2"));
}

TEST_F(CommandLine, WithNoSkipASkippedCaseIsNoSuccess) {
  EXPECT_EQ(run("model=pass | model=skip").exit_code, 0);
  const Finished done = run("model=pass | model=skip", {"--no-skip"});
  EXPECT_EQ(done.exit_code, 96);
  EXPECT_THAT(done.err, is_one_error("1 case skipped, with --no-skip"));
  EXPECT_THAT(done.last_line(), StartsWith("2 expanded = 1 pass + 0 fail + 1 skip"));
  EXPECT_EQ(run("model=pass", {"--no-skip"}).exit_code, 0);
}

TEST_F(CommandLine, ThePageHasTheFailuresAndHowToRerunThem) {
  ASSERT_EQ(run("model=pass* | model=fail | model=error", {"--html", path("r.html"), "--events", path("e")}).exit_code,
            100);
  EXPECT_THAT(read_file(path("r.html")), AllOf(HasSubstr("4 expanded = 2 pass + 1 fail + 1 error"),
                                               HasSubstr("rerun them: "), HasSubstr("--rerun-failed")));
}

TEST_F(CommandLine, AReportOfTheEventsIsThatOfTheRun) {
  const Words more = {"--events", path("e"), "--junit", path("j.xml"), "--html", path("r.html"), "--timings"};
  const Finished done = run("!model=hang", {more.begin(), more.end()});
  const Finished again = call({"report", path("e"), "--junit", path("j2.xml"), "--html", path("r2.html"), "--timings"});
  EXPECT_EQ(again.exit_code, done.exit_code);
  EXPECT_EQ(again.last_line(), done.last_line());
  EXPECT_EQ(read_file(path("j2.xml")), read_file(path("j.xml")));
  const std::string page = read_file(path("r.html"));
  const std::size_t begin = page.find("\nrerun them: ");  // which a report cannot know
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(read_file(path("r2.html")), page.substr(0, begin) + page.substr(page.find("\n", begin + 1)));
}

TEST_F(CommandLine, AReportOfARunThatWasKilledHasWhatItLeft) {
  ASSERT_EQ(run("model=pass* | model=skip", {"--events", path("e")}).exit_code, 0);
  std::string events = read_file(path("e"));
  events.resize(events.find("\"type\":\"case_started\""));
  write_file(path("e"), events);
  const Finished done = call({"report", path("e"), "--junit", path("j.xml")});
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(done.last_line(), StartsWith("3 expanded = 0 pass + 0 fail + 3 not-run"));
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr("demo/pass_2/p2p/cp1/bshd/fp32"));
}

TEST_F(CommandLine, AReportOfSeveralRunsIsAsOfOne) {
  ASSERT_EQ(run("model=pass* | model=skip", {"--shard", "1/2", "--events", path("1")}).exit_code, 0);
  ASSERT_EQ(run("model=pass* | model=skip", {"--shard", "2/2", "--events", path("2")}).exit_code, 0);
  const Finished done = call({"report", path("1"), path("2"), "--html", path("r.html")});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.last_line(), StartsWith("3 expanded = 2 pass + 0 fail + 1 skip"));
  EXPECT_THAT(read_file(path("r.html")), AllOf(HasSubstr("shard 1/2; "), HasSubstr("cpu/1 #2")));
  EXPECT_EQ(call({"report", path("1"), path("2"), "--no-skip"}).exit_code, 96);
}

TEST_F(CommandLine, AReportOfWhatIsNoEventsFileIsRefused) {
  write_file(path("half"), R"({"v":1,"type":"case_started","id":"a"})"
                           "\n");
  EXPECT_EQ(call({"report"}).exit_code, 2);
  write_file(path("empty"), "");
  ASSERT_EQ(run("model=pass", {"--events", path("e")}).exit_code, 0);
  for (const std::string& file : {path("none"), path("half"), path("demo.json"), path("empty")}) {
    const Finished done = call({"report", path("e"), file});
    EXPECT_EQ(done.exit_code, 94) << file;
    EXPECT_THAT(done.err, is_one_error(file));
  }
}

TEST_F(CommandLine, TimingsStandBeforeTheSummary) {
  const Finished done = run("model=pass", {"--timings"});
  EXPECT_THAT(done.out, HasSubstr("    1  forward               1    1.5 ms    1.5 ms    1.5 ms    1.5 ms\n"));
  EXPECT_THAT(done.last_line(), StartsWith("1 expanded"));
}

TEST_F(CommandLine, TheWorkerAndTheMatricesOfAnInstallationAreFoundBesideTheProgram) {
  std::filesystem::create_directories(folder / "bin");
  std::filesystem::create_directories(folder / "share/cp-pool/matrices");
  std::filesystem::copy(kProgram, folder / "bin/cp-pool");
  std::filesystem::copy(path("demo.json"), folder / "share/cp-pool/matrices/mine.json");
  write_file(path("bin/cp-pool-worker"), "#!/bin/sh\nexec " + kWorker + "\n");
  std::filesystem::permissions(folder / "bin/cp-pool-worker", std::filesystem::perms::owner_all);
  const Finished done = Program{{path("bin/cp-pool"), "run", "--matrix", "mine", "--filter", "model=pass"}}.wait();
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.last_line(), StartsWith("1 expanded = 1 pass"));
}

TEST_F(CommandLine, TheWorkerIsToldNotToKeepReferences) {
  const ScopedVariable requests{"CP_POOL_TEST_REQUESTS", path("requests").c_str()};
  const auto asked_for_cache = [&](const Words& words) {
    write_file(path("requests"), "");
    EXPECT_EQ(call(words).exit_code, 0);
    return json_lines(read_file(path("requests"))).at(0)["options"]["reference_cache"].get<bool>();
  };
  const Words submit = {"submit", "demo/pass/p2p/cp1/bshd/fp32", "--matrix", path("demo.json"), "--worker", kWorker};
  EXPECT_TRUE(asked_for_cache(run_words("model=pass")));
  EXPECT_FALSE(asked_for_cache(run_words("model=pass", {"--no-reference-cache"})));
  EXPECT_TRUE(asked_for_cache(submit));
  Words without = submit;
  without.emplace_back("--no-reference-cache");
  EXPECT_FALSE(asked_for_cache(without));
}

TEST_F(CommandLine, OnATerminalALineShowsForHowLongACaseHasBeenRunning) {
  int master = -1;
  int slave = -1;
  std::array<char, 64> name{};
  winsize size{.ws_row = 24, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::openpty(&master, &slave, name.data(), nullptr, &size), 0);
  const ScopedVariable term{"TERM", "xterm"};
  Words words = run_words("model=hang", {"--timeout", "2500ms"});
  words.insert(words.begin(), kProgram);
  Program program{words, {.in = "/dev/null", .out = name.data()}};
  ::close(slave);
  std::string output;
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = ::read(master, buffer.data(), buffer.size())) > 0;) {  // ends with EIO
    output.append(buffer.data(), static_cast<std::size_t>(n));
  }
  ::close(master);
  EXPECT_EQ(program.wait().exit_code, 100);
  EXPECT_THAT(output, HasSubstr("0/1 | 0:01 demo/hang/p2p/cp1/bshd/fp32"));
}

// A file, no terminal.
TEST_F(CommandLine, ASlowCaseIsSaidOnStderrAndIsAnEvent) {
  const Finished done = run("model=hang", {"--slow-after", "1ms", "--timeout", "300ms", "--events", path("e")});
  EXPECT_THAT(done.err, StartsWith("cp-pool: slow: demo/hang/p2p/cp1/bshd/fp32 has been running for "));
  EXPECT_THAT(done.err, HasSubstr(" on pool cpu/1 #1, no phase reported; its deadline is 300 ms (--timeout)\n"));
  EXPECT_THAT(done.out, Not(HasSubstr("slow")));
  const auto lines = json_lines(read_file(path("e")));
  const auto told = std::ranges::count_if(lines, [](const auto& line) { return line["type"] == "case_progress"; });
  EXPECT_EQ(told, std::ranges::count(done.err, '\n'));
  EXPECT_LT(told, 10) << "the intervals grow: 1, 2, 4, .. 256 ms";
  const Finished report = call({"report", path("e")});
  EXPECT_EQ(report.err, "") << "it is over";
}

TEST_F(CommandLine, TheWorkerIsToldWhereToDump) {
  const ScopedVariable requests{"CP_POOL_TEST_REQUESTS", path("requests").c_str()};
  EXPECT_EQ(run("model=pass", {"--dump", path("tensors")}).exit_code, 0);
  EXPECT_EQ(json_lines(read_file(path("requests"))).at(0)["options"]["dump_dir"], path("tensors"));
}

// --- Times -----------------------------------------------------------------------------------------------------------

TEST_F(CommandLine, TimesAreComparedWithThoseOfAnEarlierRun) {
  const ScopedVariable slow{"CP_POOL_TEST_STEP_MS", "8"};
  ASSERT_EQ(run("model=pass", {"--mode", "perf", "--events", path("e")}).exit_code, 0);
  const ScopedVariable fast{"CP_POOL_TEST_STEP_MS", "6"};
  const Finished done = run("model=pass*", {"--mode", "perf", "--baseline", path("e"), "--events", path("now")});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("     8.000  0.750  demo/pass/p2p/cp1/bshd/fp32\n"),
                              HasSubstr("e: 1 of 2 cases in both, 6.000 ms now and 8.000 ms then: 0.750 of it\n")));
  const auto lines = json_lines(read_file(path("now")));
  const auto timed = std::ranges::find(lines, "demo/pass/p2p/cp1/bshd/fp32", [](const auto& line) {
    return line["type"] == "case_finished" ? line["id"].template get<std::string>() : "";
  });
  ASSERT_NE(timed, lines.end());
  EXPECT_EQ((*timed)["perf"]["ratio"], 0.75);
  ASSERT_EQ(run("model=pass", {"--mode", "perf", "--events", path("one")}).exit_code, 0);
  const Finished other = run("model=pass_2", {"--mode", "perf", "--baseline", path("one")});
  EXPECT_EQ(other.exit_code, 0) << "nothing is judged, so a baseline may be of other cases";
  EXPECT_EQ(other.err, "");
}

TEST_F(CommandLine, Exits94ForABaselineOfOtherSizes) {
  const ScopedVariable time{"CP_POOL_TEST_STEP_MS", "8"};
  ASSERT_EQ(run("model=pass*", {"--mode", "perf", "--events", path("e"), "--size", "tiny"}).exit_code, 0);
  const Finished done = run("model=pass*", {"--mode", "perf", "--baseline", path("e"), "--events", path("now")});
  EXPECT_EQ(done.exit_code, 94);
  EXPECT_THAT(done.err, is_one_error("the baseline " + path("e") +
                                     " is of other problems: demo/pass/p2p/cp1/bshd/fp32 has seqlen_q 8 there and 16 "
                                     "here (2 of 2 cases differ)"));
  EXPECT_EQ(done.out, "");
  EXPECT_FALSE(std::filesystem::exists(path("now")));
  const Finished one = call({"submit", "demo/pass/p2p/cp1/bshd/fp32", "--matrix", path("demo.json"), "--worker",
                             kWorker, "--mode", "perf", "--baseline", path("e")});
  EXPECT_EQ(one.exit_code, 94);
  EXPECT_THAT(one.err, is_one_error("seqlen_q 8 there and 16 here"));
}

TEST_F(CommandLine, ACaseThatBecameTooSlowIsAFailure) {
  const ScopedVariable fast{"CP_POOL_TEST_STEP_MS", "8"};
  ASSERT_EQ(run("model=pass", {"--mode", "perf", "--events", path("before")}).exit_code, 0);
  const auto run_with = [&](const std::string& filter, const std::string& max_ratio) {
    return run(filter, {"--mode", "perf", "--baseline", path("before"), "--events", path("e"), "--junit", path("j"),
                        "--max-ratio", max_ratio});
  };
  const ScopedVariable slow{"CP_POOL_TEST_STEP_MS", "12"};
  EXPECT_EQ(run_with("model=pass", "1.5").exit_code, 0) << "the limit itself is not too slow";
  const Finished done = run_with("model=pass*", "1.4");
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(done.err, AllOf(StartsWith("cp-pool: warning: --max-ratio does not judge 1 of 2 cases"),
                              HasSubstr("such as demo/pass_2/")));
  const std::string reason = "1.500 times as slow as the baseline (12.000 ms, was 8.000 ms; --max-ratio 1.4)";
  EXPECT_THAT(done.out, AllOf(HasSubstr("fail  demo/pass/p2p/cp1/bshd/fp32 after"), HasSubstr("    " + reason + "\n"),
                              HasSubstr("     8.000  1.500  demo/pass/")));
  EXPECT_THAT(done.last_line(), StartsWith("2 expanded = 1 pass + 1 fail, "));
  EXPECT_THAT(read_file(path("j")), AllOf(HasSubstr("failures=\"1\""), HasSubstr("fail: " + reason),
                                          HasSubstr("[[PROPERTY|perf_baseline_ms=8]]\n[[PROPERTY|perf_ratio=1.5]]\n")));
  const auto lines = json_lines(read_file(path("e")));
  EXPECT_EQ(lines.back()["counts"]["fail"], 1);
  EXPECT_EQ(std::ranges::count_if(lines, [&](const auto& line) { return line.value("reason", "") == reason; }), 1);
  const Finished nothing = run_with("model=pass_2", "1.4");
  EXPECT_EQ(nothing.exit_code, 94);
  EXPECT_THAT(nothing.err, is_one_error("--max-ratio has nothing to judge"));
  const Finished submitted = call({"submit", "demo/pass_2/p2p/cp1/bshd/fp32", "--matrix", path("demo.json"), "--worker",
                                   kWorker, "--mode", "perf", "--baseline", path("before"), "--max-ratio", "1.4"});
  EXPECT_EQ(submitted.exit_code, 94);
  EXPECT_THAT(submitted.err, is_one_error("--max-ratio has nothing to judge"));
}

TEST_F(CommandLine, ALineOfAStreamThatIsAnotherProblemInTheBaselineIsRefused) {
  const ScopedVariable time{"CP_POOL_TEST_STEP_MS", "8"};
  const std::string line = std::string{R"({"id":"one","suite":"s","model":"pass","cp_size":1,)"} + kSizes;
  const Words submit = {kProgram, "submit", "-", "--json", "--worker", kWorker, "--mode", "perf"};
  write_file(path("cases"), line + "}\n");
  Words first = submit;
  first.insert(first.end(), {"--events", path("e")});
  ASSERT_EQ((Program{first, {.in = path("cases"), .out = ""}}.wait().exit_code), 0);
  write_file(path("cases"), line + R"(,"causal":true})" + "\n" + line + "}\n");
  Words second = submit;
  second.insert(second.end(), {"--baseline", path("e")});
  const Finished done = Program{second, {.in = path("cases"), .out = ""}}.wait();
  EXPECT_EQ(done.exit_code, 94);
  EXPECT_THAT(done.err, AllOf(HasSubstr("causal false there and true here (1 of 1 cases differ)\n"),
                              EndsWith("cp-pool: error: 1 of the 2 cases from <stdin> were refused\n")));
  const auto answers = json_lines(done.out);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0]["outcome"], "invalid");
  EXPECT_EQ(answers[1]["perf"]["ratio"], 1);
}

// --- submit ----------------------------------------------------------------------------------------------------------

TEST_F(CommandLine, SubmitRunsACaseByItsId) {
  const Finished done =
      call({"submit", "demo/pass/p2p/cp1/bshd/fp32", "--matrix", path("demo.json"), "--worker", kWorker, "--json"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  const auto lines = json_lines(done.out);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["id"], "demo/pass/p2p/cp1/bshd/fp32");
  EXPECT_EQ(lines[0]["outcome"], "pass");
  EXPECT_EQ(lines[0]["checks"][0]["tensor"], "dq");
}

TEST_F(CommandLine, SubmitRunsACaseFileAndItsRerunCommandWorks) {
  write_file(path("my case.json"), std::string{"{\"model\":\"fail\",\"cp_size\":1,"} + kSizes + "}");
  const Finished done = call({"submit", path("my case.json"), "--worker", kWorker, "--json"});
  EXPECT_EQ(done.exit_code, 100) << done.err;
  const auto answer = nlohmann::json::parse(done.out);
  EXPECT_EQ(answer["outcome"], "fail");
  const Finished again = Program{{"sh", "-c", answer["rerun"].get<std::string>()}}.wait();
  EXPECT_EQ(again.exit_code, 100);
  EXPECT_THAT(again.last_line(), StartsWith("1 expanded = 0 pass + 1 fail, "));
}

TEST_F(CommandLine, AnAnswerThatIsNoLineOfItsOwnIsNamed) {
  write_file(path("c.json"), std::string{"{\"model\":\"glued\",\"cp_size\":1,"} + kSizes + "}");
  const Finished done =
      call({"submit", path("c.json"), "--worker", kWorker, "--timeout", "1s", "--grace", "100ms", "--json"});
  EXPECT_THAT(
      nlohmann::json::parse(done.out)["reason"].get<std::string>(),
      AllOf(StartsWith("no result within 1000 ms (--timeout)"),
            HasSubstr("has the sentinel, but does not begin with \"[CP_POOL_RESP] \": progress: 100 %[CP_POOL_RESP]")));
}

TEST_F(CommandLine, ASentinelInALineOfAnEarlierTimeIsNotBlamed) {
  const ScopedVariable chatter{"CP_POOL_TEST_CHATTER", "log: answers begin with [CP_POOL_RESP]"};
  const Finished done = run("model=pass | model=hang", {"--timeout", "500ms"});
  EXPECT_THAT(done.out, AllOf(HasSubstr("no result within 500 ms"), Not(HasSubstr("has the sentinel"))));
}

TEST_F(CommandLine, AStreamWithoutACaseIsNoSuccess) {
  write_file(path("empty"), "\n \n");
  for (const std::string& in : {std::string{"/dev/null"}, path("empty")}) {
    const Finished done = Program{{kProgram, "submit", "-", "--worker", kWorker}, {.in = in, .out = ""}}.wait();
    EXPECT_EQ(done.exit_code, 4) << in;
    EXPECT_THAT(done.err, is_one_error("<stdin> ended without a case"));
  }
}

TEST_F(CommandLine, SubmitAnswersAStreamInOrderOnOneWarmPool) {
  const auto line = [](const char* model) {
    return std::string{"{\"model\":\""} + model + "\",\"cp_size\":1," + kSizes + "}\n";
  };
  write_file(path("cases"), line("pass") + "\n" + line("skip") + "{\"heads\":0}\n" + line("fail") + line("pass"));
  const Finished done =
      Program{{kProgram, "submit", "-", "--json", "--worker", kWorker}, {.in = path("cases"), .out = ""}}.wait();
  EXPECT_EQ(done.exit_code, 100) << done.err;
  std::vector<std::string> outcomes;
  for (const auto& answer : json_lines(done.out)) {
    outcomes.push_back(answer["outcome"]);
    if (answer["outcome"] == "invalid") continue;
    EXPECT_EQ(answer["pool"].dump(), R"({"generation":1,"key":"cpu/1"})");
  }
  EXPECT_THAT(outcomes, ElementsAre("pass", "skip", "invalid", "fail", "pass"));
  EXPECT_THAT(done.err, AllOf(StartsWith("cp-pool: error: <stdin>:4: "),
                              EndsWith("cp-pool: error: 1 of the 5 cases from <stdin> were refused\n")));
}

TEST_F(CommandLine, AStreamWithABadLineExits94WhenAllElseIsWell) {
  write_file(path("cases"), "not json\n");
  const Finished done =
      Program{{kProgram, "submit", "-", "--worker", kWorker}, {.in = path("cases"), .out = ""}}.wait();
  EXPECT_EQ(done.exit_code, 94);
  EXPECT_THAT(done.last_line(), StartsWith("0 expanded = 0 pass"));
}

TEST_F(CommandLine, AStreamThatIsCutExits100ThoughAllOfItPassed) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  Program program{{kProgram, "submit", "-", "--worker", kWorker, "--global-timeout", "300ms"},
                  {.in = path("fifo"), .out = ""}};
  FILE* to = std::fopen(path("fifo").c_str(), "w");
  const Finished done = program.wait();
  std::fclose(to);
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(done.err, is_one_error("the run was stopped before the end of the stream of cases"));
  EXPECT_THAT(done.last_line(), StartsWith("0 expanded = 0 pass + 0 fail, "));
}

TEST_F(CommandLine, AStreamIsAnsweredLineByLineWhileItIsStillOpen) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo(path("answers").c_str(), 0600), 0);
  Program program{{kProgram, "submit", "-", "--json", "--worker", kWorker},
                  {.in = path("fifo"), .out = path("answers")}};
  FILE* to = std::fopen(path("fifo").c_str(), "w");
  FILE* from = std::fopen(path("answers").c_str(), "r");
  for (const char* model : {"pass", "fail", "skip"}) {
    std::fprintf(to, "{\"model\":\"%s\",\"cp_size\":1,%s}\n", model, kSizes);
    std::fflush(to);
    std::string answer;
    for (int c = 0; (c = std::fgetc(from)) != '\n' && c != EOF;) answer += static_cast<char>(c);
    EXPECT_EQ(nlohmann::json::parse(answer)["outcome"], model);
  }
  std::fclose(to);
  std::fclose(from);
  EXPECT_EQ(program.wait().exit_code, 100);
}

TEST_F(CommandLine, ACaseFromStdinCanBeRerunByItsCommand) {
  write_file(path("cases"), std::string{"{\"model\":\"fail\",\"cp_size\":1,"} + kSizes + "}\n");
  const Finished done =
      Program{{kProgram, "submit", "-", "--json", "--worker", kWorker}, {.in = path("cases"), .out = ""}}.wait();
  const Finished again = Program{{"sh", "-c", nlohmann::json::parse(done.out)["rerun"].get<std::string>()}}.wait();
  EXPECT_EQ(again.exit_code, 100);
  EXPECT_THAT(again.last_line(), StartsWith("1 expanded = 0 pass + 1 fail, "));
}

TEST_F(CommandLine, SubmitEditsFieldsAndShowsEveryCheck) {
  const std::string id = "demo/pass/p2p/cp1/bshd/fp32";
  const Finished done = call({"submit", id, "--matrix", path("demo.json"), "--worker", kWorker, "--set", "model=fail",
                              "--set", "heads=2", "--set", "kv_heads=2"});
  EXPECT_EQ(done.exit_code, 100) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("demo/fail/p2p/cp1/bshd/fp32/heads=2/kv_heads=2"), HasSubstr("ratio"),
                              HasSubstr("WRONG"), HasSubstr("--set model=fail --set heads=2")));
  const Finished bad = call({"submit", id, "--matrix", path("demo.json"), "--set", "heads=zero"});
  EXPECT_EQ(bad.exit_code, 94);
  EXPECT_THAT(bad.err, is_one_error("heads=zero"));
}

// --- list ------------------------------------------------------------------------------------------------------------

// A worker of somebody else cannot draw them from the seed.
TEST_F(CommandLine, TellsTheWorkerTheLengthsOfItsSequences) {
  const ScopedVariable requests{"CP_POOL_TEST_REQUESTS", path("requests").c_str()};
  const Finished done = call({"submit", "demo/pass/p2p/cp1/bshd/fp32", "--matrix", path("demo.json"), "--worker",
                              kWorker, "--set", "layout=thd", "--set", "batch=3", "--set", "pad_between_seqs=true"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  const auto lengths = json_lines(read_file(path("requests"))).at(0)["lengths"];
  for (const char* name : {"valid_q", "padded_q", "valid_kv", "padded_kv"}) EXPECT_EQ(lengths[name].size(), 3U) << name;
}

TEST_F(CommandLine, ListPrintsIdsThatFilterTakesBack) {
  const Finished all = call({"list", "--matrix", path("demo.json")});
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_EQ(all.out_lines().size(), 7U);
  for (const std::string& id : all.out_lines()) {
    EXPECT_THAT(call({"list", "--matrix", path("demo.json"), "--filter", id}).out_lines(), ElementsAre(id));
  }
}

TEST_F(CommandLine, ListPrintsJsonAndCounts) {
  const Finished list = call({"list", "--matrix", path("demo.json"), "--filter", "model=pass", "--json"});
  const auto array = nlohmann::json::parse(list.out);
  ASSERT_EQ(array.size(), 1U);
  EXPECT_EQ(array[0]["id"], "demo/pass/p2p/cp1/bshd/fp32");
  EXPECT_EQ(array[0]["world_size"], 1);
  EXPECT_EQ(array[0]["size"], "small");
  EXPECT_TRUE(array[0]["tags"].is_array());
  EXPECT_EQ(array[0]["case"]["model"], "pass");
  EXPECT_EQ(array[0]["lengths"]["padded_kv"], nlohmann::json({16}));
  EXPECT_EQ(call({"list", "--matrix", path("demo.json"), "--count"}).out, "demo 7\ntotal 7\n");
  EXPECT_EQ(nlohmann::json::parse(call({"list", "--matrix", path("demo.json"), "--filter", "none/*", "--json"}).out),
            nlohmann::json::array());
}

TEST_F(CommandLine, ExplainDrawsACaseOfAMatrixWithItsEdits) {
  const Finished done = call({"explain", "demo/pass/p2p/cp1/bshd/fp32", "--matrix", path("demo.json"), "--set",
                              "cp_size=2", "--set", "causal=true"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("p2p of 2 ranks"), HasSubstr("       0 #............... 0\n"),
                              HasSubstr("visible pairs x 1 heads")));
  EXPECT_EQ(call({"explain", "no/such/case", "--matrix", path("demo.json")}).exit_code, 94);
}

// --- doctor ----------------------------------------------------------------------------------------------------------

TEST_F(CommandLine, DoctorStartsTheWorkerAndListsWhatWouldRun) {
  const Finished done = call({"doctor", "--worker", kWorker});
  EXPECT_EQ(done.exit_code, 0) << done.out;
  EXPECT_THAT(done.out, AllOf(HasSubstr("CPU "), HasSubstr("2 ready in"), HasSubstr("a case     ok      pass"),
                              HasSubstr("te-flash (small): ")));
}

TEST_F(CommandLine, DoctorNamesAWorkerThatDoesNotStartAndExits96) {
  const Finished done = call({"doctor", "--worker", "/no/such/worker"});
  EXPECT_EQ(done.exit_code, 96);
  EXPECT_THAT(done.out, AllOf(HasSubstr("ranks      MISSING the pool cannot start: "), HasSubstr("/no/such/worker")));
  EXPECT_THAT(done.out, Not(HasSubstr("cp-pool-worker")));  // no remedy for a worker of the user's own
}

TEST_F(CommandLine, HelpAndVersionAreNoErrors) {
  EXPECT_EQ(call({"--version"}).out, "cp-pool " CP_POOL_VERSION "\n");
  const Finished help = call({"submit", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Usage: cp-pool submit"));
}

}  // namespace
}  // namespace cp_pool
