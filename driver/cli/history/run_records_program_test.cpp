// Tests the records of runs as the real program keeps and shows them.
#include <csignal>
#include <memory>
#include <sys/stat.h>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

class RecordsOfRuns : public CommandLine {
 protected:
  [[nodiscard]] nlohmann::json runs() {
    const Finished done = call({"runs", "--json"});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return nlohmann::json::parse(done.out);
  }
  [[nodiscard]] std::string records() const { return path("state/cp-pool/runs"); }
};

TEST_F(RecordsOfRuns, AreListedAndShown) {
  ASSERT_EQ(run("model=pass | model=fail", {"--events", path("e")}).exit_code, 100);
  ASSERT_EQ(run("model=pass", {"--no-record"}).exit_code, 0);
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
  ASSERT_EQ(::stat(records().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);

  EXPECT_THAT(call({"show"}), exits(100, last_line(StartsWith("2 expanded = 1 pass + 1 fail, "))));
  const Finished one = call({"show", kFail});
  EXPECT_THAT(one.out, AllOf(HasSubstr(kFail), HasSubstr("dq")));
  EXPECT_THAT(one.last_line(), StartsWith("1 expanded = 0 pass + 1 fail"));
  const Finished none = call({"show", "last", "demo/fail/p2p/cp1/bshd/fp16"});
  EXPECT_EQ(none.exit_code, 94);
  EXPECT_THAT(none.err, is_one_error("the run has no case 'demo/fail/p2p/cp1/bshd/fp16'; did you mean "
                                     "'demo/fail/p2p/cp1/bshd/fp32'?"));
  EXPECT_THAT(call({"show", "-2"}).err, is_one_error("there is no run -2: 1 run is recorded"));
}

TEST_F(RecordsOfRuns, SayWhatFailedForARerun) {
  ASSERT_EQ(run("model=pass | model=fail").exit_code, 100);
  EXPECT_THAT(run("*", {"--rerun-failed", "last"}), exits(100, last_line(StartsWith("1 expanded = 0 pass + 1 fail"))));
  EXPECT_THAT(run("*", {"--rerun-failed", "999999"}),
              refuses(94, "no recorded run is called '999999' (see cp-pool runs; the last is "));
}

TEST_F(RecordsOfRuns, AreHeldAgainstEachOther) {
  EXPECT_THAT(call({"diff"}).err, is_one_error("no run is recorded"));
  ASSERT_EQ(run("model=pass* | model=skip").exit_code, 0);
  EXPECT_THAT(call({"diff"}).err, is_one_error("there is no run -2: 1 run is recorded"));
  {
    const ScopedVariable leak("CP_POOL_TEST_LEAK", "1");
    ASSERT_EQ(run("model=pass* | model=skip").exit_code, 100);
  }
  EXPECT_THAT(call({"diff"}),
              exits(100, out(HasSubstr("\n1 new failure:\n  demo/pass_2/p2p/cp1/bshd/fp32 (fail, was pass): "
                                       "found what was left\n"),
                             HasSubstr("\n3 cases in both"))));
  const auto json = nlohmann::json::parse(call({"diff", "--json"}).out);
  EXPECT_EQ(json["counts"]["new-failure"], 1);
  EXPECT_EQ(json["changes"][0]["id"], "demo/pass_2/p2p/cp1/bshd/fp32");
  EXPECT_EQ(json["exit_code"], 100);
  EXPECT_THAT(call({"diff", "last", "-2"}), exits(0, out(HasSubstr("\n1 fixed:\n"))));
  EXPECT_EQ(call({"diff", "last", "-2", "--fail-on", "fixed"}).exit_code, 100);
  EXPECT_EQ(call({"diff", "last", "last"}).exit_code, 94);
  EXPECT_THAT(call({"diff", "--fail-on", "newer"}), exits(2, err(HasSubstr("'newer' is none of new-failure, fixed,"))));
}

TEST_F(RecordsOfRuns, AndFilesOfEventsAreHeldAgainstEachOther) {
  ASSERT_EQ(run("model=pass | model=fail", {"--events", path("e"), "--no-record"}).exit_code, 100);
  ASSERT_EQ(run("model=pass", {"--events", path("other"), "--no-record"}).exit_code, 0);
  EXPECT_THAT(call({"diff", path("e"), path("other")}),
              exits(0, out(HasSubstr("only in the earlier run:\n  demo/fail/p2p/cp1/bshd/fp32\n"))));
  ASSERT_EQ(run("model=skip", {"--events", path("third"), "--no-record"}).exit_code, 0);
  EXPECT_THAT(call({"diff", path("e"), path("third")}).err, is_one_error("have no case in common"));
  EXPECT_EQ(call({"diff", path("e"), path("none")}).exit_code, 94);
}

TEST_F(RecordsOfRuns, AreTheTrendOfEachCaseInReportsAndAnOrder) {
  ASSERT_EQ(run("model=pass*").exit_code, 0);
  {
    const ScopedVariable leak("CP_POOL_TEST_LEAK", "1");
    ASSERT_EQ(run("model=pass*").exit_code, 100);
  }
  ASSERT_EQ(run("model=pass*", {"--order", "history", "--html", path("html"), "--events", path("e")}).exit_code, 0);
  const auto ended = events_in(path("e"), "case_finished");
  ASSERT_THAT(ended, SizeIs(2));
  EXPECT_EQ(ended[0]["id"], "demo/pass_2/p2p/cp1/bshd/fp32") << "it failed in the last run, so it is the first";
  EXPECT_EQ(ended[0]["earlier"][0]["outcome"], "pass");
  EXPECT_EQ(ended[0]["earlier"][1]["outcome"], "fail");
  EXPECT_EQ(ended[0]["earlier"][1]["run"], runs()[1]["id"]);
  EXPECT_THAT(read_file(path("html")), HasSubstr("earlier runs"));
  ASSERT_EQ(call({"show", "-2", "--html", path("shown")}).exit_code, 100);
  EXPECT_THAT(read_file(path("shown")), HasSubstr("earlier runs: 1 pass (the oldest first)"));
}

// A worker of another name that fails where the scripted one passes.
TEST_F(RecordsOfRuns, OfTwoImplementationsAreToldApart) {
  const std::string other = "env CP_POOL_TEST_LEAK=1 " + kWorker;
  const auto run_of_other = [&](const Words& more = {}) {
    Words words = run_words("model=pass*", more);
    *std::ranges::find(words, kWorker) = other;
    return call(words);
  };
  const Finished own = run("model=pass*");
  ASSERT_EQ(own.exit_code, 0);
  EXPECT_THAT(own.out, StartsWith("cp-pool " CP_POOL_VERSION ": 2 cases of "));
  EXPECT_THAT(own.out.substr(0, own.out.find('\n')), HasSubstr(" on cpu, implementation: worker python3 "));
  ASSERT_EQ(run("model=pass*").exit_code, 0);
  const Finished failing =
      run_of_other({"--order", "history", "--html", path("html"), "--junit", path("junit"), "--summary", path("md")});
  ASSERT_EQ(failing.exit_code, 100) << failing.err;
  EXPECT_THAT(failing.err, HasSubstr("warning: --order history: no run of size small on cpu, implementation: worker "
                                     "env CP_POOL_TEST_LEAK=1 python3 "));
  for (const char* const page : {"html", "junit", "md"}) {
    EXPECT_THAT(read_file(path(page)), HasSubstr("worker env CP")) << page;
    EXPECT_THAT(read_file(path(page)), Not(HasSubstr("earlier runs"))) << page;
  }

  EXPECT_THAT(call({"diff"}), refuses(94, "is of its implementation (worker env CP_POOL_TEST_LEAK=1 python3 "));
  EXPECT_THAT(call({"diff", "-2"}),
              exits(100, out(StartsWith("not one implementation: worker python3 "), HasSubstr("1 new failure"))));
  EXPECT_EQ(nlohmann::json::parse(call({"diff", "-2", "--json"}).out)["not_alike"], 2);

  ASSERT_EQ(run_of_other({"--html", path("html")}).exit_code, 100);
  EXPECT_THAT(read_file(path("html")), HasSubstr("earlier runs: 1 fail (the oldest first)"));
  EXPECT_THAT(call({"diff"}), exits(0, out(StartsWith("earlier "), HasSubstr("failed before, and still do"))));
  ASSERT_EQ(run("model=pass*").exit_code, 0);
  EXPECT_EQ(call({"diff"}).exit_code, 0) << "two runs of the other are between them";

  const nlohmann::json all = runs();
  EXPECT_EQ(all[1]["implementations"][0], "worker python3 " CP_POOL_SCRIPTED_WORKER);
  EXPECT_THAT(std::string(all[2]["implementations"][0]), StartsWith("worker env CP_POOL_TEST_LEAK=1 python3 "));
  EXPECT_THAT(call({"runs"}).out, HasSubstr(" on cpu, implementation: worker env CP_POOL_TEST_LEAK=1 "));
  EXPECT_THAT(call({"show", "-2"}).out, HasSubstr("implementation: worker env CP_POOL_TEST_LEAK=1 "));
}

TEST_F(RecordsOfRuns, OfAVersionThatDidNotNameTheImplementationAreOfNone) {
  ASSERT_EQ(run("model=pass").exit_code, 0);
  const std::string file = runs()[0]["events"];
  std::string events = read_file(file);
  const std::size_t begin = events.find("\"implementations\":[");
  ASSERT_NE(begin, std::string::npos);
  events.erase(begin, events.find(']', begin) + 2 - begin);
  write_file(file, events);
  ASSERT_EQ(run("model=pass").exit_code, 0);
  EXPECT_THAT(call({"diff"}).err, is_one_error("is of its implementation"));
  EXPECT_THAT(call({"diff", "-2"}),
              exits(0, out(StartsWith("not one implementation: unknown earlier, worker python3 "))));
}

TEST_F(RecordsOfRuns, AreTheBaselineOfATimedRun) {
  const ScopedVariable step("CP_POOL_TEST_STEP_MS", "10");
  ASSERT_EQ(run("model=pass", {"--mode", "perf"}).exit_code, 0);
  const std::string first = runs()[0]["events"];
  ASSERT_EQ(run("model=pass", {"--mode", "perf", "--baseline", "last", "--events", path("e")}).exit_code, 0);
  EXPECT_EQ(json_lines(read_file(path("e")))[0]["baseline"], first);
  ASSERT_EQ(run("model=pass").exit_code, 0);
  EXPECT_THAT(run("model=pass", {"--mode", "perf", "--baseline", "last"}), refuses(94, "has no times"));
  EXPECT_EQ(run("model=pass", {"--mode", "perf", "--baseline", "-2"}).exit_code, 0);
}

TEST_F(RecordsOfRuns, AreWhereTheConfigurationSays) {
  write_file(folder / "cp-pool.toml", "[profile.default]\nrecord.dir = \"mine\"\njunit = \"report.xml\"\n");
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  ASSERT_EQ(run("model=pass").exit_code, 0);
  EXPECT_THAT(runs(), SizeIs(1));
  std::filesystem::remove(folder / "report.xml");
  EXPECT_EQ(call({"show"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "report.xml")) << "that is a report of run alone";
  std::filesystem::current_path(here);
  EXPECT_THAT(runs(), IsEmpty());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path("mine")), {}), 1);
}

TEST_F(RecordsOfRuns, OfARunThatGoesOnAndOfOneThatIsKilledSaySo) {
  Words words = program_words("model=pass | model=hang", {"--timeout", "10m"});
  Program program{words};
  const auto hangs = [&] {
    const nlohmann::json all = runs();
    return all.size() == 1 && all[0]["counts"]["pass"] == 1;
  };
  while (!hangs()) ASSERT_TRUE(program.running());
  EXPECT_EQ(runs()[0]["state"], "running");
  EXPECT_EQ(run("model=pass", {"--record-count", "1"}).exit_code, 0);
  EXPECT_THAT(runs(), SizeIs(2)) << "a run that goes on is not pruned";
  program.signal(SIGKILL);
  program.wait();
  EXPECT_EQ(runs()[0]["state"], "killed");
  EXPECT_EQ(runs()[0]["exit_code"], nullptr);
  const std::string killed = runs()[0]["id"];
  EXPECT_THAT(call({"show", killed}).last_line(), StartsWith("2 expanded = 1 pass + 0 fail + 1 not-run, "));
  EXPECT_EQ(run("model=pass", {"--record-count", "1"}).exit_code, 0);
  EXPECT_THAT(runs(), SizeIs(1));
}

TEST_F(RecordsOfRuns, AtATimeDoNotCollide) {
  Words words = program_words("model=pass");
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
#ifndef __SANITIZE_THREAD__  // programs with the runtime of TSan do not start under such a limit
  Words words{"bash", "-c", "exec 4>&1; { (ulimit -f 1; exec \"$@\" 2>&3) | cat >&4; } 3>&1 | cat >&2", "bash",
              kProgram};
  const Words of_run = run_words("model=pass*");
  words.insert(words.end(), of_run.begin(), of_run.end());
  const Finished full = run_to_end(words);
  EXPECT_THAT(full.err, StartsWith("cp-pool: warning: this run is not recorded: cannot write " + records()));
  EXPECT_THAT(full.last_line(), StartsWith("2 expanded = 2 pass"));
  EXPECT_THAT(runs(), IsEmpty());
  EXPECT_TRUE(std::filesystem::is_empty(records()));
#endif
}

}  // namespace
}  // namespace cp_pool::test
