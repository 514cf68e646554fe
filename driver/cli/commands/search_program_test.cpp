// The real program searches for the faults of a worker that has rules (ruled_worker.py).
#include <thread>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using nlohmann::json;
using namespace ::testing;

class SearchProgram : public CommandLine {
 protected:
  static std::string worker(const std::vector<std::string>& rules) {
    std::string words = "python3 '" CP_POOL_RULED_WORKER "'";
    for (const std::string& rule : rules) words += " \"" + rule + "\"";
    return words;
  }

  [[nodiscard]] Words search_words(const std::vector<std::string>& rules, const Words& more = {}) const {
    return with({kProgram, "search", "--seed", "7", "--filter", "cp_size<=2", "--worker", worker(rules), "--slots", "2",
                 "--grace", "100ms", "--events", path("e")},
                more);
  }
  Finished search(const std::vector<std::string>& rules, const Words& more = {}) {
    return run_to_end(search_words(rules, more));
  }

  // Returns the events of this type that the last search wrote.
  [[nodiscard]] std::vector<json> events(const std::string& type) const { return events_in(path("e"), type); }
  [[nodiscard]] std::vector<json> cases(const std::string& step) const {
    std::vector<json> out = events("case_finished");
    std::erase_if(out, [&](const json& event) { return event.value("search", "") != step; });
    return out;
  }

  std::string state = (folder / "state").string();
  ScopedVariable state_home{"XDG_STATE_HOME", state.c_str()};
};

TEST_F(SearchProgram, ThatFindsNothingIsASuccess) {
  const Finished done = search({}, {"--cases", "40"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out,
              AllOf(StartsWith("cp-pool "), HasSubstr("cases from a search (seed 7) on cpu, implementation: worker "),
                    HasSubstr("\nsearched 40 cases judged in "), HasSubstr(": 40 cases were judged (--cases)\n"),
                    HasSubstr("\n  comm: "), HasSubstr("\n  edges: "), HasSubstr("\nfound nothing\n")));
  EXPECT_THAT(done.last_line(), StartsWith("40 expanded = 40 pass + 0 fail, "));
  EXPECT_THAT(cases("drawn"), SizeIs(40));
  EXPECT_EQ(events("run_started").at(0)["seed"], 7);
  EXPECT_EQ(events("search_finished").at(0)["judged"], 40);
  EXPECT_FALSE(std::filesystem::exists(state)) << "nothing is kept";
}

TEST_F(SearchProgram, FindsTheSmallestCaseOfAWrongAnswer) {
  const Finished done = search({"fail=causal and heads > kv_heads"}, {"--junit", path("j"), "--html", path("h")});
  EXPECT_EQ(done.exit_code, 100) << done.err;
  ASSERT_THAT(events("search_found"), SizeIs(1));
  const json found = events("search_found")[0];
  EXPECT_EQ(found["how"], "fail of dq");
  EXPECT_EQ(found["case"]["heads"], 2);
  EXPECT_EQ(found["case"]["kv_heads"], 1);
  EXPECT_EQ(found["case"]["seqlen_q"], 2);
  EXPECT_EQ(found["case"]["cp_size"], 1);
  EXPECT_EQ(found["tries"], cases("smaller").size());
  ASSERT_THAT(cases("smallest"), SizeIs(1));
  EXPECT_EQ(cases("smallest")[0]["id"], found["smallest"]);
  // The output shows the smallest case with its checks, and ends with a summary of what was found.
  const std::string small =
      R"({"cp_size":1,"dtype":"fp32","batch":1,"seqlen_q":2,"seqlen_kv":2,"heads":2,"kv_heads":1,"head_dim_qk":1,)"
      R"("head_dim_v":1,"causal":true,"training":false})";
  const std::string smallest = found["smallest"];
  const std::size_t block = done.out.find("fail  " + smallest);
  ASSERT_NE(block, std::string::npos) << done.out;
  const std::string end = done.out.substr(block);
  EXPECT_THAT(
      end, AllOf(HasSubstr("rank 0: dq: error 0.5 > bound 0.25"), HasSubstr("\nfound: fail of dq, first in search/7-"),
                 HasSubstr("\nfound 1 failure:\n  fail of dq: " + small), HasSubstr("\nkept in " + state)));
  // Of the failures on the way only the first is shown in full.
  EXPECT_EQ(done.out.find("rank 0: dq: error", done.out.find("rank 0: dq: error") + 1) > block - 1, true);
  EXPECT_THAT(read_file(path("j")),
              AllOf(HasSubstr("[[PROPERTY|search=smallest]]"), HasSubstr("[[PROPERTY|search=drawn]]")));
  EXPECT_THAT(read_file(path("h")), HasSubstr("found 1 failure"));
}

TEST_F(SearchProgram, GivesTheCommandThatRunsTheSmallestCaseAlone) {
  search({"fail=causal"}, {"--found", "off"});
  const std::string command = events("search_found").at(0)["command"];
  EXPECT_THAT(command, HasSubstr("submit - --worker"));
  EXPECT_THAT(run_to_end({"sh", "-c", command}), exits(100, out(HasSubstr("rank 0: dq: error 0.5 > bound 0.25"))));
}

TEST_F(SearchProgram, MakesACrashSmaller) {
  EXPECT_THAT(search({"crash=layout == 'thd' and not pad_between_seqs"}), exits(100));
  const json found = events("search_found").at(0);
  EXPECT_EQ(found["how"], "crash: signal 11 (SIGSEGV)");
  EXPECT_EQ(found["case"]["layout"], "thd");
  EXPECT_EQ(found["case"]["batch"], 1);
  EXPECT_EQ(found["case"]["heads"], 1);
  EXPECT_EQ(found["case"]["bias"], nullptr);
}

TEST_F(SearchProgram, MakesAHangSmallerWithShortDeadlines) {
  const Finished done = search({"hang=bias is not None"}, {"--timeout", "3s", "--set", "cp_size=1", "--set",
                                                           "layout=bshd", "--shrink-time", "4s"});
  EXPECT_EQ(done.exit_code, 100);
  const json found = events("search_found").at(0);
  EXPECT_EQ(found["how"], "timeout");
  EXPECT_NE(found["case"]["bias"], nullptr);
  double longest_pass_ms = 0;
  for (const json& event : events("case_finished")) {
    if (event["outcome"] == "pass") longest_pass_ms = std::max(longest_pass_ms, event["duration_ms"].get<double>());
  }
  // 2 s are short enough, unless a pass took more than a twentieth of it on this machine.
  const std::string deadline = longest_pass_ms < 100 ? "2000" : "[23][0-9][0-9][0-9]";
  EXPECT_THAT(cases("again").at(0)["reason"].get<std::string>(),
              ::testing::ContainsRegex(deadline + " ms \\(the deadline of this case\\)"));
  EXPECT_THAT(cases("smaller"), Not(IsEmpty()));
}

TEST_F(SearchProgram, RunsWhatItHasFoundFirstTheNextTime) {
  const std::vector<std::string> fault = {"fail=causal"};
  search(fault);
  const std::string first = events("search_found").at(0)["case"].dump();
  // The kept case still fails.
  EXPECT_EQ(search(fault).exit_code, 100);
  EXPECT_THAT(events("case_finished"), SizeIs(1));
  EXPECT_EQ(events("search_found").at(0)["kept"], true);
  EXPECT_EQ(events("search_found").at(0)["case"].dump(), first);
  // The fault is fixed. A worker with another command line has another file.
  const auto entries = [&] {
    return std::distance(std::filesystem::directory_iterator(state + "/cp-pool/found"),
                         std::filesystem::directory_iterator{});
  };
  EXPECT_EQ(entries(), 1);
  const std::string file = std::filesystem::directory_iterator(state + "/cp-pool/found")->path();
  const Finished fixed = search({}, {"--found", file, "--cases", "10"});
  EXPECT_EQ(fixed.exit_code, 0);
  EXPECT_THAT(fixed.out,
              HasSubstr("1 case found by earlier searches: 1 passes now (fixed, or no longer the same problem) and is "
                        "kept: search/kept-1/"));
  EXPECT_THAT(cases("kept"), SizeIs(1));
  EXPECT_THAT(json_lines(read_file(file)), SizeIs(1)) << "it stays";
}

TEST_F(SearchProgram, AddsNothingToItsFileWithoutARecord) {
  EXPECT_THAT(search({"fail=causal"}, {"--no-record"}),
              exits(100, out(HasSubstr("\nfound 1 failure:\n"), Not(HasSubstr("\nkept in ")))));
  EXPECT_FALSE(std::filesystem::exists(state + "/cp-pool/found"));
  search({"fail=causal"}, {"--found", path("found")});
  const std::string kept = read_file(path("found"));
  EXPECT_EQ(search({"fail=causal"}, {"--found", path("found"), "--no-record"}).exit_code, 100);
  EXPECT_THAT(cases("kept"), SizeIs(1)) << "it runs what was found before";
  EXPECT_EQ(search({"fail=not causal"}, {"--found", path("found"), "--no-record"}).exit_code, 100);
  EXPECT_EQ(read_file(path("found")), kept);
}

TEST_F(SearchProgram, NamesBadLinesOfItsFileAndGoesOn) {
  write_file(path("found"), "no json\n{\"case\":{\"heads\":0}}\n");
  EXPECT_THAT(search({}, {"--found", path("found"), "--cases", "5"}),
              exits(94, err(HasSubstr("cp-pool: error: --found " + path("found") + ":1:2: not JSON"),
                            HasSubstr("cp-pool: error: --found " + path("found") + ":2, case: $.seqlen_q"))));
  EXPECT_THAT(cases("drawn"), SizeIs(5));
}

TEST_F(SearchProgram, ThatCannotKeepWhatItFindsSaysSo) {
  write_file(path("file"), "");
  const Finished done = search({"fail=causal"}, {"--found", path("file") + "/found"});
  EXPECT_EQ(done.exit_code, 100) << "a failure comes before an output that is lost";
  EXPECT_THAT(done.err, HasSubstr("cp-pool: error: --found: cannot write " + path("file") + "/found"));
}

TEST_F(SearchProgram, KeepsFixedFieldsAndRefusesImpossibleOnes) {
  EXPECT_THAT(search({}, {"--cases", "20", "--set", "comm=a2a", "--set", "window=3,-1"}),
              exits(0, out(HasSubstr("\n  all with comm=a2a, window=3,-1\n"))));
  for (const json& event : cases("drawn")) {
    EXPECT_EQ(event["case"]["comm"], "a2a");
    EXPECT_EQ(event["case"]["window"].dump(), "[3,-1]");
  }
  EXPECT_THAT(search({}, {"--set", "heads=2", "--set", "kv_heads=3"}), refuses(4, "none is possible and selected"));
  EXPECT_THAT(search({}, {"--set", "head=2"}), refuses(94, "a case has no field 'head'"));
}

TEST_F(SearchProgram, WithFailFastDoesNotMakeTheFailureSmaller) {
  const Finished done = search({"fail=causal"}, {"-x"});
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(cases("smaller"), IsEmpty());
  EXPECT_THAT(done.out, HasSubstr("the run was stopped before it was made smaller"));
}

TEST_F(SearchProgram, ThatIsInterruptedTellsWhatItHas) {
  Program program(
      search_words({"fail=causal", "hang=training and not causal and seq > 20"}, {"--time", "0", "--keep-going"}));
  const auto hangs = [&] {
    const std::string text = std::filesystem::exists(path("e")) ? read_file(path("e")) : "";
    return text.find("search_found") != std::string::npos &&
           text.find("\"case_started\"", text.find("search_found")) != std::string::npos;
  };
  while (!hangs()) std::this_thread::yield();
  program.signal(SIGINT);
  const Finished done = program.wait();
  EXPECT_EQ(done.exit_code, 130);
  EXPECT_THAT(done.out,
              AllOf(HasSubstr(": the run was stopped\n"), HasSubstr("found 1 failure"), HasSubstr("interrupted")));
  EXPECT_THAT(events("run_finished"), SizeIs(1));
  EXPECT_EQ(events("search_finished").at(0)["why"], "the run was stopped");
}

TEST_F(SearchProgram, OfAWorkerThatDoesNotStartEndsSoon) {
  EXPECT_THAT(run_to_end({kProgram, "search", "--worker", "false", "--seed", "1", "--events", path("e")}), exits(96));
  EXPECT_EQ(events("search_finished").at(0)["why"], "no pool starts");
  EXPECT_LE(events("case_finished").size(), 3U);
}

}  // namespace
}  // namespace cp_pool::test
