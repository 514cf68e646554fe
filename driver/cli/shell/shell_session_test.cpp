#include "driver/cli/shell/shell_session.h"

#include <sstream>

#include <gmock/gmock.h>

#include "driver/core/exit_code.h"
#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using namespace ::testing;

using Words = std::vector<std::string>;

// A session whose commands are recorded and not carried out.
class ShellSessionTest : public ::testing::Test {
 protected:
  ShellSessionTest()
      : session({.lookup = {"--matrix=m"}, .adapter = {"--adapter=a.py"}, .execution = {"--timeout=5s"}},
                {.run =
                     [this](const Words& words) {
                       called = words;
                       return 4;
                     },
                 .submit =
                     [this](const Words& words) {
                       called = words;
                       return ShellSession::Submitted{.code = 100, .result = result};
                     },
                 .service = [] { return "there"; },
                 .print = [this](const std::string& text) { printed += text; }}) {}

  int carry_out(const std::string& line) { return session.carry_out(parse_shell_line(line)); }
  std::string error_of(const std::string& line) {
    try {
      carry_out(line);
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "no error";
  }

  Words called;
  std::string printed;
  std::optional<CaseFinished> result = test::finished(0, "a/b", CaseOutcome::pass);
  ShellSession session;
};

TEST_F(ShellSessionTest, SubmitsAnIdWithTheOptionsOfTheShellAndOfTheLine) {
  EXPECT_EQ(carry_out("a/b --no-diagnosis"), 100);
  EXPECT_THAT(called, ElementsAre("submit", "a/b", "--matrix=m", "--timeout=5s", "--no-diagnosis"));
}

TEST_F(ShellSessionTest, DoesNotLookUpAFile) {
  carry_out("case.json");
  EXPECT_THAT(called, ElementsAre("submit", "case.json", "--timeout=5s"));
}

TEST_F(ShellSessionTest, SubmitsFieldsAsJson) {
  carry_out("cp_size=2 comm=a2a window=64,0 causal=true");
  EXPECT_THAT(called,
              ElementsAre("submit", R"({"cp_size":2,"comm":"a2a","window":[64,0],"causal":true})", "--timeout=5s"));
  EXPECT_THAT(error_of("cp_siz=2"), HasSubstr("a case has no field 'cp_siz'; did you mean 'cp_size'?"));
  EXPECT_THAT(error_of("a/b c/d"), HasSubstr("submit takes one case: unexpected argument 'c/d'"));
}

TEST_F(ShellSessionTest, ChangesFieldsOfTheCasesThatFollowUntilTheyAreUnset) {
  carry_out("a/b");
  called.clear();
  carry_out("set window=64,0 comm=a2a");
  carry_out("set window=32,0");
  EXPECT_THAT(called, IsEmpty()) << "set runs nothing";
  EXPECT_THAT(printed, EndsWith("changed in the cases that follow: comm=a2a window=32,0\n"));
  EXPECT_EQ(session.prompt(), "cp-pool [comm=a2a window=32,0]> ");
  carry_out("again --timeout=9s");
  EXPECT_THAT(called, ElementsAre("submit", "a/b", "--matrix=m", "--set=comm=a2a", "--set=window=32,0", "--timeout=5s",
                                  "--timeout=9s"));
  carry_out("unset comm");
  carry_out("again");
  EXPECT_THAT(called, ElementsAre("submit", "a/b", "--matrix=m", "--set=window=32,0", "--timeout=5s"));
  carry_out("unset");
  EXPECT_THAT(printed, EndsWith("no field is changed\n"));
  EXPECT_EQ(session.prompt(), "cp-pool> ");
}

TEST_F(ShellSessionTest, RefusesChangesThatNoCaseCanHave) {
  EXPECT_THAT(error_of("set comm=p3p"), HasSubstr("--set comm=p3p"));
  EXPECT_THAT(error_of("set comm"), HasSubstr("it is not KEY=VALUE"));
  EXPECT_THAT(error_of("set cp_size=4 comm=p3p"), HasSubstr("comm=p3p"));
  EXPECT_THAT(session.edits(), IsEmpty()) << "a line is carried out as a whole or not at all";
  EXPECT_THAT(error_of("unset comm"), HasSubstr("the field 'comm' is not changed"));
}

TEST_F(ShellSessionTest, RepeatsOptionsOfTheLineAgain) {
  carry_out("a/b --bound-factor 2");
  carry_out("again");
  EXPECT_THAT(called, ElementsAre("submit", "a/b", "--matrix=m", "--timeout=5s", "--bound-factor", "2"));
}

TEST_F(ShellSessionTest, DumpsTheLastCase) {
  EXPECT_THAT(error_of("dump"), HasSubstr("no case has been submitted yet"));
  carry_out("a/b");
  EXPECT_EQ(carry_out("dump there"), 100);
  EXPECT_THAT(called, ElementsAre("submit", "a/b", "--matrix=m", "--timeout=5s", "--dump=there"));
  EXPECT_THAT(printed, EndsWith("dump: there\n"));
  carry_out("again");
  EXPECT_THAT(called, ElementsAre("submit", "a/b", "--matrix=m", "--timeout=5s")) << "and dumps nothing";
}

TEST_F(ShellSessionTest, ListsWhatAFilterSelects) {
  EXPECT_EQ(carry_out("list comm=p2p & layout=thd --count"), 4);
  EXPECT_THAT(called, ElementsAre("list", "--matrix=m", "--adapter=a.py", "--filter=comm=p2p & layout=thd", "--count"));
  carry_out("list");
  EXPECT_THAT(called, ElementsAre("list", "--matrix=m", "--adapter=a.py"));
}

TEST_F(ShellSessionTest, ExplainsACaseOrTheLast) {
  EXPECT_THAT(error_of("explain"), HasSubstr("no case has been submitted yet"));
  carry_out("set comm=a2a");
  carry_out("explain c/d");
  EXPECT_THAT(called, ElementsAre("explain", "c/d", "--matrix=m", "--set=comm=a2a"));
  carry_out("a/b");
  carry_out("explain --html x.html");
  EXPECT_THAT(called, ElementsAre("explain", "a/b", "--matrix=m", "--set=comm=a2a", "--html", "x.html"));
}

TEST_F(ShellSessionTest, AsksTheServiceThatItUses) {
  carry_out("status --json");
  EXPECT_THAT(called, ElementsAre("status", "--name=there", "--json"));
}

TEST_F(ShellSessionTest, ComparesTheLastTwoResults) {
  EXPECT_THAT(error_of("diff"), HasSubstr("so far there is none"));
  carry_out("a/b");
  EXPECT_THAT(error_of("diff"), HasSubstr("so far there is one"));
  result = test::failed_case(0, "a/b");
  carry_out("again");
  result = test::finished(0, "a/b", CaseOutcome::not_run);  // Ctrl-C
  carry_out("again");
  result.reset();  // a case that was refused
  carry_out("no/such");
  EXPECT_EQ(carry_out("diff"), 0);
  EXPECT_THAT(printed, AllOf(StartsWith("a/b\n"), HasSubstr("outcome ")));
  carry_out("again");
  EXPECT_THAT(called, ElementsAre("submit", "a/b", "--matrix=m", "--timeout=5s")) << "not what was refused";
  result = test::finished(0, "c/d", CaseOutcome::pass);
  carry_out("c/d");
  printed.clear();
  carry_out("diff");
  EXPECT_THAT(printed, StartsWith("before: a/b\nnow:    c/d\n"));
}

TEST_F(ShellSessionTest, SaysWhyTheLastFailureFailed) {
  EXPECT_THAT(error_of("why"), HasSubstr("no case has failed yet"));
  result = test::failed_case(0, "a/b");
  result->diagnosis = test::example_diagnosis();
  carry_out("a/b");
  result = test::finished(0, "a/b", CaseOutcome::pass);
  carry_out("again");
  EXPECT_EQ(carry_out("why"), 0);
  EXPECT_THAT(printed,
              AllOf(StartsWith("fail  a/b after 100 ms\n"),
                    HasSubstr("    cause: the window's left edge is 63 instead of 64 on all ranks"),
                    HasSubstr("    rank 1: dq: error 0.031 > bound 0.012"), HasSubstr("  | hello from rank 0\n"),
                    EndsWith("    rerun: cp-pool run --matrix te-flash --size small --filter a/b\n")));
}

TEST_F(ShellSessionTest, HelpsAndEnds) {
  carry_out("help");
  EXPECT_EQ(printed, shell_help());
  carry_out("help submit");
  EXPECT_THAT(called, ElementsAre("help", "submit"));
  EXPECT_FALSE(session.ended());
  EXPECT_EQ(carry_out("quit"), 0);
  EXPECT_TRUE(session.ended());
}

CaseFinished passed() {
  CaseFinished event = test::finished(0, "a/b", CaseOutcome::pass);
  event.ranks = {{{.output_hash = "f00d"}, 0}, {{.output_hash = "beef"}, 1}};
  event.timings_ms = {{"forward", 10}};
  return event;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(ResultDiff, OfEqualResultsHasTimesAlone) {
  CaseFinished now = passed();
  now.duration_ms = 150;
  now.timings_ms = {{"forward", 5}};
  EXPECT_THAT(
      lines_of(result_diff(passed(), now)),
      ElementsAre("           before  now", "time       100 ms  150 ms  x 1.50", "  forward  10 ms   5.0 ms  x 0.50",
                  "the same: case, outcome pass, 2 checks, outputs of 2 ranks"));
}

TEST(ResultDiff, NamesFieldsChecksAndOutputsThatDiffer) {
  CaseFinished now = passed();
  test::attention(now.payload).window = {64, 0};
  now.outcome = CaseOutcome::fail;
  now.reason = "out is\nwrong";
  now.checks[1].ok = false;
  now.checks[1].error = 4e-3;
  now.ranks[0].output_hash = "0bad";
  const std::vector<std::string> lines = lines_of(result_diff(passed(), now));
  EXPECT_THAT(lines, Contains("window           -1,-1                    64,0"));
  EXPECT_THAT(lines, Contains("outcome          pass                     fail"));
  EXPECT_THAT(lines, Contains("reason                                    out is wrong"));
  EXPECT_THAT(lines, Contains("out, rank 1      ok 0.001 / 0.002 = 0.50  WRONG 0.004 / 0.002 = 2.00"));
  EXPECT_THAT(lines, Contains("outputs, rank 0  f00d                     0bad"));
  EXPECT_THAT(lines, Not(Contains(StartsWith("out, rank 0"))));
  EXPECT_EQ(lines.back(), "the same: 1 check, outputs of 1 rank");
}

TEST(ResultDiff, HasADashForWhatOneOfThemLacks) {
  CaseFinished now = passed();
  now.checks.clear();
  now.ranks.clear();
  now.timings_ms = {{"backward", 7}};
  const std::string text = result_diff(passed(), now);
  EXPECT_THAT(text, HasSubstr("out, rank 0      ok 0.001 / 0.002 = 0.50  -\n"));
  EXPECT_THAT(text, HasSubstr("outputs, rank 1  beef                     -\n"));
  EXPECT_THAT(text, HasSubstr("  backward       -                        7.0 ms\n"));
}

TEST(ResultDiff, ComparesTheStepOfTimedCases) {
  EXPECT_THAT(result_diff(test::timed_case(0, "a/b", 10), test::timed_case(0, "a/b", 20)),
              HasSubstr("step, median  10 ms   20 ms   x 2.00\n"));
}

TEST(ResultDiff, CutsLongTexts) {
  CaseFinished now = passed();
  now.reason = std::string(200, 'x') + " end";
  EXPECT_THAT(result_diff(passed(), now), HasSubstr("x.. end\n"));
  EXPECT_THAT(result_diff(passed(), now), Not(HasSubstr(std::string(60, 'x'))));
}

}  // namespace
}  // namespace cp_pool
