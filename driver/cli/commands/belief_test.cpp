// Every report shows how far a worker's pass is backed by its figures: by good figures, by none, or by figures that
// deny it.
#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

class Belief : public CommandLine {
 protected:
  // Submits one case of two ranks, whose model tells the scripted worker what to answer.
  Finished submit(const std::string& model, const Words& more = {}) {
    write_file(path("case.json"), case_of(model, R"("cp_size":2,)"));
    return call(with({"submit", path("case.json"), "--worker", kWorker, "--grace", "100ms"}, more));
  }
};

TEST_F(Belief, EveryReportMarksAPassWithoutFigures) {
  const Finished done =
      submit("unmeasured", {"--junit", path("j.xml"), "--html", path("h.html"), "--events", path("e.jsonl")});
  EXPECT_THAT(done, exits(0, out(HasSubstr(" (unverified by figures)\n"), HasSubstr("\n1 unverified by figures: "))));
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr("[[PROPERTY|verdict=unverified by figures]]"));
  EXPECT_THAT(read_file(path("h.html")), HasSubstr("<td>unverified by figures</td>"));
  EXPECT_THAT(read_file(path("e.jsonl")), HasSubstr(R"("unverified_by_figures":true)"));

  EXPECT_THAT(call({"report", path("e.jsonl"), "--junit", path("j2.xml"), "--html", path("h2.html")}),
              exits(0, out(HasSubstr("1 unverified by figures: "))));
  EXPECT_THAT(read_file(path("j2.xml")), HasSubstr("[[PROPERTY|verdict=unverified by figures]]"));
  EXPECT_THAT(read_file(path("h2.html")), HasSubstr("<td>unverified by figures</td>"));

  const Finished json = submit("unmeasured", {"--json"});
  EXPECT_EQ(nlohmann::json::parse(json.out)["unverified_by_figures"], true);
}

TEST_F(Belief, NoReportMarksAPassWithFigures) {
  const Finished done =
      submit("pass", {"--junit", path("j.xml"), "--html", path("h.html"), "--events", path("e.jsonl")});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  for (const std::string& text : {done.out, read_file(path("j.xml")), read_file(path("h.html"))}) {
    EXPECT_THAT(text, Not(HasSubstr("unverified")));
  }
  EXPECT_THAT(read_file(path("e.jsonl")), HasSubstr(R"("unverified_by_figures":false)"));
}

TEST_F(Belief, APassThatItsFiguresDenyIsAnErrorThatNamesThem) {
  EXPECT_THAT(submit("denies", {"--junit", path("j.xml")}),
              exits(100, out(HasSubstr("a result \"pass\", though dq of rank 0 has error 0.5 > bound 0.25"),
                             HasSubstr("rank 0: dq: the worker calls it ok; error 0.5 > bound 0.25"),
                             HasSubstr("1 expanded = 0 pass + 0 fail + 1 error"))));
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr("<error type=\"error\""));
}

TEST_F(Belief, AStepOfNoTimeAtAllIsAnErrorAndNoRatioIsNoNumber) {
  const ScopedVariable time{"CP_POOL_TEST_STEP_MS", "0"};
  const Finished done = submit("pass", {"--mode", "perf", "--html", path("h.html")});
  EXPECT_THAT(done, exits(100, out(HasSubstr("the case passed, but the worker gave a step of 0 ms instead of times"))));
  for (const std::string& text : {done.out, read_file(path("h.html"))}) EXPECT_THAT(text, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace cp_pool::test
