// A worker's pass is none if its figures deny it.
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
