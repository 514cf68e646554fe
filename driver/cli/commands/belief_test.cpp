// Every report shows how far a worker's pass is backed by its figures: by good figures, by none, or by figures that
// deny it.
#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/cli/testing/started_program.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool {
namespace {

using namespace ::testing;

class Belief : public ::testing::Test {
 protected:
  // Submits one case of two ranks, whose model tells the scripted worker what to answer.
  test::Finished submit(const std::string& model, std::vector<std::string> words = {}) {
    test::write_file(folder_ / "case.json",
                     R"({"suite":"demo","model":")" + model +
                         R"(","cp_size":2,"comm":"p2p","layout":"bshd","dtype":"fp32","batch":1,"seqlen_q":16,)"
                         R"("seqlen_kv":16,"heads":1,"kv_heads":1,"head_dim_qk":8,"head_dim_v":8})");
    words.insert(words.begin(), {CP_POOL_PROGRAM, "submit", path("case.json"), "--worker",
                                 "python3 '" CP_POOL_SCRIPTED_WORKER "'", "--grace", "100ms"});
    return test::Program{std::move(words)}.wait();
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] std::string text_of(const std::string& name) const { return test::read_file(folder_ / name); }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(Belief, EveryReportMarksAPassWithoutFigures) {
  const test::Finished done =
      submit("unmeasured", {"--junit", path("j.xml"), "--html", path("h.html"), "--events", path("e.jsonl")});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr(" (unverified by figures)\n"), HasSubstr("\n1 unverified by figures: ")));
  EXPECT_THAT(text_of("j.xml"), HasSubstr("[[PROPERTY|verdict=unverified by figures]]"));
  EXPECT_THAT(text_of("h.html"), HasSubstr("<td>unverified by figures</td>"));
  EXPECT_THAT(text_of("e.jsonl"), HasSubstr(R"("unverified_by_figures":true)"));

  const test::Finished report = test::Program{
      {CP_POOL_PROGRAM, "report", path("e.jsonl"), "--junit", path("j2.xml"), "--html",
       path("h2.html")}}.wait();
  EXPECT_EQ(report.exit_code, 0) << report.err;
  EXPECT_THAT(report.out, HasSubstr("1 unverified by figures: "));
  EXPECT_THAT(text_of("j2.xml"), HasSubstr("[[PROPERTY|verdict=unverified by figures]]"));
  EXPECT_THAT(text_of("h2.html"), HasSubstr("<td>unverified by figures</td>"));

  const test::Finished json = submit("unmeasured", {"--json"});
  EXPECT_EQ(nlohmann::json::parse(json.out)["unverified_by_figures"], true);
}

TEST_F(Belief, NoReportMarksAPassWithFigures) {
  const test::Finished done =
      submit("pass", {"--junit", path("j.xml"), "--html", path("h.html"), "--events", path("e.jsonl")});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  for (const std::string& text : {done.out, text_of("j.xml"), text_of("h.html")}) {
    EXPECT_THAT(text, Not(HasSubstr("unverified")));
  }
  EXPECT_THAT(text_of("e.jsonl"), HasSubstr(R"("unverified_by_figures":false)"));
}

TEST_F(Belief, APassThatItsFiguresDenyIsAnErrorThatNamesThem) {
  const test::Finished done = submit("denies", {"--junit", path("j.xml")});
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(done.out, AllOf(HasSubstr("a result \"pass\", though dq of rank 0 has error 0.5 > bound 0.25"),
                              HasSubstr("rank 0: dq: the worker calls it ok; error 0.5 > bound 0.25")));
  EXPECT_THAT(done.out, HasSubstr("1 expanded = 0 pass + 0 fail + 1 error"));
  EXPECT_THAT(text_of("j.xml"), HasSubstr("<error type=\"error\""));
}

TEST_F(Belief, AStepOfNoTimeAtAllIsAnErrorAndNoRatioIsNoNumber) {
  const test::ScopedVariable time{"CP_POOL_TEST_STEP_MS", "0"};
  const test::Finished done = submit("pass", {"--mode", "perf", "--html", path("h.html")});
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(done.out, HasSubstr("the case passed, but the worker gave a step of 0 ms instead of times"));
  for (const std::string& text : {done.out, text_of("h.html")}) EXPECT_THAT(text, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace cp_pool
