// The real program with input that is wrong, endless or missing, and with options in the style of other test programs.
#include <iterator>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

class Input : public CommandLine {
 protected:
  // Runs the program after a shell command, such as one that sets a limit or changes the folder.
  static Finished call_after(const std::string& shell, const Words& words) {
    Words all{"/bin/sh", "-c", shell + "; exec \"$@\"", "sh", kProgram};
    std::ranges::copy(words, std::back_inserter(all));
    return run_to_end(all);
  }
};

TEST_F(Input, KeywordsSelectAPartOfWhatFiltersSelect) {
  const auto listed = [&](const Words& more) {
    return call(with({"list", "--matrix", path("demo.json")}, more)).out_lines();
  };
  EXPECT_THAT(listed({"-k", "pass"}), ElementsAre(kPass, "demo/pass_2/p2p/cp1/bshd/fp32"));
  EXPECT_THAT(listed({"-k", "PASS and not pass_2"}), ElementsAre(kPass));
  EXPECT_THAT(listed({"-k", "pass or skip", "--filter", "model=pass", "--filter", "model=error"}), ElementsAre(kPass));
  EXPECT_THAT(run("*", {"-k", "thd"}),
              exits(4, err(StartsWith("cp-pool: warning: -k 'thd' selects no case\ncp-pool: error: no case of "))));
  EXPECT_THAT(run("*", {"-k", "pass fail"}),
              exits(94, err(HasSubstr("bad -k: expected 'and' or 'or' here\n  pass fail\n       ^\n"))));
}

TEST_F(Input, ShortOptionsStopEarlyAndShowMoreOrLess) {
  EXPECT_THAT(run("model=fail | model=skip", {"-x"}).last_line(),
              StartsWith("2 expanded = 0 pass + 1 fail + 1 not-run, "));
  EXPECT_THAT(run("model=pass", {"-q"}).out, Not(HasSubstr("demo/pass")));
  const std::string plain = run("model=pass", {"--events", path("e")}).out;
  EXPECT_THAT(plain, AllOf(HasSubstr("demo/pass"), Not(HasSubstr("ratio"))));
  EXPECT_THAT(run("model=pass", {"-v"}).out, AllOf(HasSubstr("demo/pass"), HasSubstr("ratio"), HasSubstr("dq")));
  EXPECT_THAT(call({"report", path("e")}).out, Not(HasSubstr("demo/pass")));
  EXPECT_THAT(call({"report", path("e"), "-v"}).out, AllOf(HasSubstr("demo/pass"), HasSubstr("ratio")));
}

TEST_F(Input, AMatrixThatExcludesEverythingIsNoEmptySelection) {
  write_file(path("none.json"), std::string{R"({"suite":"s","defaults":{)"} + kSizes +
                                    R"(},"models":{"a":{}},"exclude":["model=a"],"sizes":{"small":{}}})");
  EXPECT_THAT(call({"run", "--matrix", path("none.json")}),
              refuses(94, "none.json: $.exclude: exclude removes all 1 combinations"));
}

TEST_F(Input, WhatNeverEndsIsRefused) {
  for (const Words& words : {Words{"run", "--matrix", "/dev/zero"}, Words{"submit", "/dev/zero"}}) {
    EXPECT_THAT(call(words), refuses(94, "/dev/zero: larger than 256 MiB, the limit for a matrix or case"));
  }
}

TEST_F(Input, WhatStandsBehindANulByteIsRefused) {
  write_file(path("c.json"), std::string{"{\"cp_size\":1,"} + kSizes + "}" + '\0' + "{");
  EXPECT_THAT(call({"submit", path("c.json"), "--worker", kWorker}), refuses(94, "not JSON: a NUL byte"));
}

TEST_F(Input, TooFewDescriptorsAreSaidSo) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "no program with its runtime starts under such a limit";
#endif
  const Words words = run_words("model=pass");
  const std::string close_others = "exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-; ulimit -n ";
  for (const char* const limit : {"5", "6", "8", "12"}) {
    EXPECT_THAT(call_after(close_others + limit, words),
                exits(96, err(StartsWith("cp-pool: error: "), HasSubstr("open files: the limit is"),
                              Not(HasSubstr("internal error")))))
        << limit;
  }
}

TEST_F(Input, AWorkingDirectoryThatIsGoneIsSaidSoWhereItIsNeeded) {
  const std::string gone = "mkdir '" + path("gone") + "'; cd '" + path("gone") + "'; rmdir '" + path("gone") + "'";
  for (const std::string option : {"--junit", "--html", "--events", "--run-dir", "--dump"}) {
    const Finished done = call_after(gone, run_words("model=pass", {option, "x"}));
    EXPECT_EQ(done.exit_code, 73) << option;
    EXPECT_THAT(done.err, is_one_error("cannot write x: the working directory is gone")) << option;
  }
  EXPECT_THAT(call_after(gone, {"list", "--matrix", "x.json"}),
              refuses(94, "x.json: cannot be read: the working directory is gone"));
  EXPECT_THAT(call_after(gone, {"report", "x"}), refuses(94, "cannot read the file x: the working directory is gone"));
  EXPECT_EQ(call_after(gone, {"list", "--count"}).exit_code, 0) << "nothing there is needed";
}

}  // namespace
}  // namespace cp_pool::test
