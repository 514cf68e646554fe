// The real program on streams of cases: the IDs and line numbers of cases, and reruns of those that failed.
#include <cstdio>
#include <sys/stat.h>
#include <thread>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

class CaseStream : public CommandLine {
 protected:
  static std::string line(const std::string& model, const std::string& more = "") {
    return case_of(model, "\"cp_size\":1," + more) + "\n";
  }

  Finished submit(const std::string& text, const Words& more = {}) {
    write_file(path("cases"), text);
    return run_to_end(with({kProgram, "submit", "-", "--worker", kWorker, "--grace", "100ms"}, more),
                      {.in = path("cases")});
  }
};

TEST_F(CaseStream, CasesThatDifferHaveDifferentIdsAndCasesThatDoNotHaveTheSame) {
  const Finished done = submit(
      line("pass") + line("pass", "\"causal\":true,") + line("pass") + line("pass", "\"id\":\"mine\","), {"--json"});
  const auto answers = json_lines(done.out);
  ASSERT_EQ(answers.size(), 4U);
  EXPECT_THAT(answers[0]["id"].get<std::string>(), StartsWith("adhoc/pass/p2p/cp1/bshd/bf16/hash="));
  EXPECT_NE(answers[0]["id"], answers[1]["id"]);
  EXPECT_EQ(answers[0]["id"], answers[2]["id"]);
  EXPECT_EQ(answers[3]["id"], "mine");
}

TEST_F(CaseStream, CasesOfOneIdHaveDumpsOfTheirOwn) {
  const ScopedVariable requests{"CP_POOL_TEST_REQUESTS", path("requests").c_str()};
  const auto sent_ids = [&](const Words& more) {
    write_file(path("requests"), "");
    EXPECT_EQ(
        submit(line("pass", "\"id\":\"a\",") + line("pass", "\"id\":\"b\",") + line("pass", "\"id\":\"a\","), more)
            .exit_code,
        0);
    std::vector<std::string> ids;
    for (const auto& request : json_lines(read_file(path("requests")))) {
      if (request["op"] == "run") ids.push_back(request["id"]);
    }
    return ids;
  };
  EXPECT_THAT(sent_ids({"--dump", path("d"), "--junit", path("j")}), ElementsAre("a", "b", "a (#2)"));
  EXPECT_THAT(read_file(path("j")), HasSubstr("<testcase name=\"a (#2)\""));
  const auto third =
      json_lines(
          submit(line("pass", "\"id\":\"a\",") + line("pass", "\"id\":\"a\","), {"--json", "--dump", path("d")}).out)
          .at(1);
  EXPECT_EQ(third["id"], "a");
  EXPECT_EQ(third["dump_name"], "a (#2)");
  EXPECT_THAT(sent_ids({}), ElementsAre("a", "b", "a"));
}

TEST_F(CaseStream, NumberIsTheLineOfTheInputEverywhere) {
  const std::string text = "\n" + line("pass") + "\n\nno json\n" + line("fail") + "{\"heads\":0}\n";
  const Finished done = submit(text, {"--json", "--events", path("e"), "--junit", path("j")});
  EXPECT_EQ(done.exit_code, 100);
  std::vector<int> numbers;
  for (const auto& answer : json_lines(done.out)) numbers.push_back(answer["number"]);
  EXPECT_THAT(numbers, ElementsAre(2, 5, 6, 7));
  EXPECT_THAT(done.err, AllOf(StartsWith("cp-pool: error: <stdin>:5:2: not JSON: "),
                              HasSubstr("\ncp-pool: error: <stdin>:7: $.seqlen_q: this size is missing"),
                              EndsWith("2 of the 4 cases from <stdin> were refused\n")));
  numbers.clear();
  for (const auto& event : json_lines(read_file(path("e")))) {
    const std::string type = event["type"];
    if (type == "case_started" || type == "case_finished") numbers.push_back(event["number"]);
  }
  EXPECT_THAT(numbers, ElementsAre(2, 2, 6, 6));
  EXPECT_THAT(read_file(path("j")), HasSubstr("[[PROPERTY|number=6]]"));
  EXPECT_THAT(submit(text).out, HasSubstr("pass        2 "));
}

TEST_F(CaseStream, WhatListPrintsIsAStream) {
  const Finished listed = call({"list", "--matrix", path("demo.json"), "--json", "-k", "pass or skip"});
  std::string stream;
  for (const auto& one : nlohmann::json::parse(listed.out)) stream += one.dump() + "\n";
  const Finished done = submit(stream, {"--json"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  std::vector<std::string> ids;
  for (const auto& answer : json_lines(done.out)) ids.push_back(answer["id"]);
  EXPECT_EQ(ids, call({"list", "--matrix", path("demo.json"), "-k", "pass or skip"}).out_lines());
}

TEST_F(CaseStream, AFileMayHoldWhatListPrints) {
  write_file(path("c.json"), "{\"id\":\"from/the/list\",\"case\":" + line("pass") + "}");
  const Finished done = call({"submit", path("c.json"), "--worker", kWorker, "--json"});
  EXPECT_EQ(json_lines(done.out).at(0)["id"], "from/the/list");
}

TEST_F(CaseStream, WhatFailedIsRerunFromItsEvents) {
  const std::string text =
      line("pass") + line("fail") + line("error", "\"id\":\"broken\",") + line("fail") + line("skip");
  const Finished first = submit(text, {"--events", path("e")});
  EXPECT_EQ(first.exit_code, 100);
  const std::string lead = "\nrerun them: ";
  ASSERT_THAT(first.out, HasSubstr(lead));
  const std::size_t begin = first.out.find(lead) + lead.size();
  const Finished again = run_to_end({"sh", "-c", first.out.substr(begin, first.out.find('\n', begin) - begin)});
  EXPECT_THAT(again.last_line(), StartsWith("2 expanded = 0 pass + 1 fail + 1 error, ")) << again.err;
  EXPECT_THAT(again.out, HasSubstr("error  broken after"));
  const Words rerun = {"submit", "--rerun-failed", path("e"), "--worker", kWorker, "--events", path("e")};
  Words edited = rerun;
  edited.insert(edited.end(), {"--set", "model=pass", "--json"});
  const Finished better = call(edited);
  EXPECT_EQ(better.exit_code, 0) << better.err;
  EXPECT_EQ(json_lines(better.out).at(1)["id"], "broken/model=pass");
  EXPECT_THAT(call(rerun), refuses(4, "nothing failed in " + path("e")));
}

TEST_F(CaseStream, ACaseThatWasRunningWhenTheDriverWasKilledIsRerun) {
  submit(line("pass") + line("fail"), {"--events", path("e")});
  std::string events = read_file(path("e"));
  events.resize(events.find("{\"v\":1", events.rfind("\"type\":\"case_started\"")));  // cut before that event
  write_file(path("e"), events);
  const Finished done = call({"submit", "--rerun-failed", path("e"), "--worker", kWorker, "--json"});
  EXPECT_THAT(done.err, HasSubstr("warning: " + path("e") + " was cut off before its run ended"));
  const auto answers = json_lines(done.out);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0]["outcome"], "fail");
}

TEST_F(CaseStream, CasesThatAMatrixRunHadNotComeToAreInItsMatrix) {
  ASSERT_EQ(run("model=fail | model=pass", {"--events", path("e")}).exit_code, 100);
  const std::string events = read_file(path("e"));
  write_file(path("e"), events.substr(0, events.find('\n') + 1));
  EXPECT_THAT(call({"submit", "--rerun-failed", path("e"), "--worker", kWorker}),
              refuses(94, "cp-pool run --rerun-failed looks them up"));
}

TEST_F(CaseStream, TheCommandLineNamesOneSourceOfCases) {
  for (const auto& [words, part] : std::vector<std::pair<Words, std::string>>{
           {{"submit"}, "CASE or --rerun-failed is required"},
           {{"submit", "-", "--rerun-failed", "e"}, "CASE and --rerun-failed contradict each other"},
           {{"submit", "--rerun-failed", "e", "--size", "full"}, "--size is for the ID of a case"}}) {
    EXPECT_THAT(call(words), refuses(2, part));
  }
}

TEST_F(CaseStream, OneThatHasNothingToSaySaysWhatItWaitsFor) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  Program program{{"sh", "-c", "exec \"$@\" 2>" + path("err"), "sh", kProgram, "submit", "-", "--worker", kWorker},
                  {.in = path("fifo")}};
  FILE* to = std::fopen(path("fifo").c_str(), "w");
  while (!has_text(path("err"), "\n")) std::this_thread::yield();
  std::fputs(line("pass").c_str(), to);
  std::fclose(to);
  EXPECT_EQ(program.wait().exit_code, 0);
  EXPECT_EQ(read_file(path("err")), "cp-pool: waiting for cases from <stdin>, one JSON object a line\n");
}

TEST_F(CaseStream, OneThatNeverEndsIsGivenUp) {
  EXPECT_THAT(run_to_end({kProgram, "submit", "-", "--worker", kWorker}, {.in = "/dev/zero"}),
              exits(94, err(HasSubstr("line 1 of <stdin> has more than 256 MiB: the rest is not read\n"))));
}

TEST_F(CaseStream, AStreamWithoutACaseIsNoSuccess) {
  write_file(path("empty"), "\n \n");
  for (const std::string& in : {std::string{"/dev/null"}, path("empty")}) {
    const Finished done = run_to_end({kProgram, "submit", "-", "--worker", kWorker}, {.in = in});
    EXPECT_EQ(done.exit_code, 4) << in;
    EXPECT_THAT(done.err, is_one_error("<stdin> ended without a case"));
  }
}

TEST_F(CaseStream, SubmitAnswersAStreamInOrderOnOneWarmPool) {
  const Finished done =
      submit(line("pass") + "\n" + line("skip") + "{\"heads\":0}\n" + line("fail") + line("pass"), {"--json"});
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

TEST_F(CaseStream, AStreamWithABadLineExits94WhenAllElseIsWell) {
  EXPECT_THAT(submit("not json\n"), exits(94, last_line(StartsWith("0 expanded = 0 pass"))));
}

TEST_F(CaseStream, AStreamThatIsCutExits100ThoughAllOfItPassed) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  Program program{{kProgram, "submit", "-", "--worker", kWorker, "--global-timeout", "300ms"}, {.in = path("fifo")}};
  FILE* to = std::fopen(path("fifo").c_str(), "w");
  const Finished done = program.wait();
  std::fclose(to);
  EXPECT_THAT(done, exits(100, err(is_one_error("the run was stopped before the end of the stream of cases")),
                          last_line(StartsWith("0 expanded = 0 pass + 0 fail, "))));
}

TEST_F(CaseStream, AStreamIsAnsweredLineByLineWhileItIsStillOpen) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo(path("answers").c_str(), 0600), 0);
  Program program{{kProgram, "submit", "-", "--json", "--worker", kWorker},
                  {.in = path("fifo"), .out = path("answers")}};
  FILE* to = std::fopen(path("fifo").c_str(), "w");
  FILE* from = std::fopen(path("answers").c_str(), "r");
  for (const char* model : {"pass", "fail", "skip"}) {
    std::fputs(line(model).c_str(), to);
    std::fflush(to);
    std::string answer;
    for (int c = 0; (c = std::fgetc(from)) != '\n' && c != EOF;) answer += static_cast<char>(c);
    EXPECT_EQ(nlohmann::json::parse(answer)["outcome"], model);
  }
  std::fclose(to);
  std::fclose(from);
  EXPECT_EQ(program.wait().exit_code, 100);
}

TEST_F(CaseStream, ACaseFromStdinCanBeRerunByItsCommand) {
  const Finished done = submit(line("fail"), {"--json"});
  EXPECT_THAT(run_to_end({"sh", "-c", nlohmann::json::parse(done.out)["rerun"].get<std::string>()}),
              exits(100, last_line(StartsWith("1 expanded = 0 pass + 1 fail, "))));
}

}  // namespace
}  // namespace cp_pool::test
