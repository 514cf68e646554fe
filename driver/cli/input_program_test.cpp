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
    return Program{all}.wait();
  }
};

TEST_F(Input, KeywordsSelectAPartOfWhatFiltersSelect) {
  const auto listed = [&](const Words& more) {
    return call(with({"list", "--matrix", path("demo.json")}, more)).out_lines();
  };
  EXPECT_THAT(listed({"-k", "pass"}), ElementsAre("demo/pass/p2p/cp1/bshd/fp32", "demo/pass_2/p2p/cp1/bshd/fp32"));
  EXPECT_THAT(listed({"-k", "PASS and not pass_2"}), ElementsAre("demo/pass/p2p/cp1/bshd/fp32"));
  EXPECT_THAT(listed({"-k", "pass or skip", "--filter", "model=pass", "--filter", "model=error"}),
              ElementsAre("demo/pass/p2p/cp1/bshd/fp32"));
  const Finished none = run("*", {"-k", "thd"});
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_THAT(none.err, StartsWith("cp-pool: warning: -k 'thd' selects no case\ncp-pool: error: no case of "));
  const Finished bad = run("*", {"-k", "pass fail"});
  EXPECT_EQ(bad.exit_code, 94);
  EXPECT_THAT(bad.err, HasSubstr("bad -k: expected 'and' or 'or' here\n  pass fail\n       ^\n"));
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
  const Finished done = call({"run", "--matrix", path("none.json")});
  EXPECT_EQ(done.exit_code, 94);
  EXPECT_THAT(done.err, is_one_error("none.json: $.exclude: exclude removes all 1 combinations"));
}

TEST_F(Input, WhatNeverEndsIsRefused) {
  for (const Words& words : {Words{"run", "--matrix", "/dev/zero"}, Words{"submit", "/dev/zero"}}) {
    const Finished done = call(words);
    EXPECT_EQ(done.exit_code, 94);
    EXPECT_THAT(done.err, is_one_error("/dev/zero: larger than 256 MiB, the limit for a matrix or case"));
  }
}

TEST_F(Input, WhatStandsBehindANulByteIsRefused) {
  write_file(path("c.json"), std::string{"{\"cp_size\":1,"} + kSizes + "}" + '\0' + "{");
  const Finished done = call({"submit", path("c.json"), "--worker", kWorker});
  EXPECT_EQ(done.exit_code, 94);
  EXPECT_THAT(done.err, is_one_error("not JSON: a NUL byte"));
}

TEST_F(Input, TooFewDescriptorsAreSaidSo) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "no program with its runtime starts under such a limit";
#endif
  const Words words = run_words("model=pass");
  const std::string close_others = "exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-; ulimit -n ";
  for (const char* const limit : {"5", "6", "8", "12"}) {
    const Finished done = call_after(close_others + limit, words);
    EXPECT_EQ(done.exit_code, 96) << limit;
    EXPECT_THAT(done.err, AllOf(StartsWith("cp-pool: error: "), HasSubstr("open files: the limit is"),
                                Not(HasSubstr("internal error"))))
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
  const Finished matrix = call_after(gone, {"list", "--matrix", "x.json"});
  EXPECT_EQ(matrix.exit_code, 94);
  EXPECT_THAT(matrix.err, is_one_error("x.json: cannot be read: the working directory is gone"));
  const Finished events = call_after(gone, {"report", "x"});
  EXPECT_EQ(events.exit_code, 94);
  EXPECT_THAT(events.err, is_one_error("cannot read the file x: the working directory is gone"));
  EXPECT_EQ(call_after(gone, {"list", "--count"}).exit_code, 0) << "nothing there is needed";
}

}  // namespace
}  // namespace cp_pool::test
