// `cp-pool explain` on a case of a matrix.
#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

using ExplainProgram = CommandLine;

TEST_F(ExplainProgram, ExplainDrawsACaseOfAMatrixWithItsEdits) {
  EXPECT_THAT(call({"explain", kPass, "--matrix", path("demo.json"), "--set", "cp_size=2", "--set", "causal=true"}),
              exits(0, out(HasSubstr("p2p of 2 ranks"), HasSubstr("       0 #............... 0\n"),
                           HasSubstr("visible pairs x 1 heads"))));
  EXPECT_EQ(call({"explain", "no/such/case", "--matrix", path("demo.json")}).exit_code, 94);
}

TEST_F(ExplainProgram, SaysWhichOverridesSelectTheCase) {
  write_file(path("o.toml"),
             "[[override]]\nfilter = \"model=pass\"\ntimeout = \"5m\"\n"
             "[[override]]\nfilter = \"cp_size=2\"\nxfail = \"issue 5\"\n");
  Words explain = {"explain", kPass, "--matrix", path("demo.json"), "--config", path("o.toml")};
  EXPECT_THAT(call(explain).out, EndsWith("overrides that select this case (the last one counts):\n  " +
                                          path("o.toml") + ":1: timeout = 5m\n"));
  const Finished edited = call(with(explain, {"--set", "cp_size=2"}));
  EXPECT_THAT(edited.out, AllOf(HasSubstr(":1: timeout = 5m\n"), HasSubstr(":4: xfail = issue 5\n")));
  explain[1] = kFail;
  EXPECT_EQ(call(explain).out.find("override"), std::string::npos);
}

TEST_F(ExplainProgram, AlsoWritesAPage) {
  const Words explain = {"explain", kPass, "--matrix", path("demo.json")};
  EXPECT_THAT(call(with(explain, {"--html", path("c.html")})), exits(0, out(call(explain).out)))
      << "the text is the same with and without";
  EXPECT_THAT(read_file(path("c.html")), HasSubstr("<h1>demo/pass/p2p/cp1/bshd/fp32</h1>"));
  EXPECT_EQ(call(with(explain, {"--html", path("c.html")})).exit_code, 0) << "its own page may be replaced";
}

TEST_F(ExplainProgram, ThePageReplacesNoOtherFileUnlessForced) {
  const Words explain = {"explain", kPass, "--matrix", path("demo.json")};
  ASSERT_EQ(run("model=pass", {"--html", path("report.html")}).exit_code, 0);
  write_file(path("mine"), "mine");
  for (const char* file : {"report.html", "mine"}) {
    const std::string before = read_file(path(file));
    EXPECT_THAT(call(with(explain, {"--html", path(file)})), refuses(2, "this file is no explanation of cp-pool"));
    EXPECT_EQ(read_file(path(file)), before);
  }
  EXPECT_THAT(call(with(explain, {"--html", path("demo.json"), "--force"})), refuses(2, " are the same file"));
  EXPECT_EQ(call(with(explain, {"--html", path("mine"), "--force"})).exit_code, 0);
  EXPECT_EQ(run("model=pass", {"--html", path("mine")}).exit_code, 2) << "a report does not replace the page";
  EXPECT_EQ(call(with(explain, {"--html", path("none/c.html")})).exit_code, 73);
}

}  // namespace
}  // namespace cp_pool::test
