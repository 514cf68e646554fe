// The real program with cases that run more than once: within a run (--repeat), and in a run and its rerun.
#include <regex>
#include <set>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

using Reruns = CommandLine;

TEST_F(Reruns, TheRunsOfARepeatedCaseHaveNumbersAndSayWhereTheyDiffer) {
  const ScopedVariable hash{"CP_POOL_TEST_HASH", "seq"};  // other output bits each time: all runs but the first fail
  const Finished done = run("model=pass | model=fail", {"--repeat", "3", "--junit", path("j.xml"), "--html",
                                                        path("r.html"), "--events", path("e")});
  EXPECT_EQ(done.exit_code, 100);
  const std::string pass = kPass;
  EXPECT_THAT(done.out,
              AllOf(HasSubstr(pass + " (run 1 of 3)\n"), HasSubstr("fail  " + pass + " (run 3 of 3) after"),
                    HasSubstr("1 of 2 repeated: runs that ended differently\n  fail in 2 of 3: " + pass + "\n")));
  const std::string junit = read_file(path("j.xml"));
  std::set<std::string> names;
  const std::regex name{"<testcase name=\"([^\"]*)\""};
  for (std::sregex_iterator match{junit.begin(), junit.end(), name}, end; match != end; ++match)
    names.insert((*match)[1]);
  EXPECT_EQ(names.size(), 6U) << "each test case has a name of its own";
  EXPECT_TRUE(names.contains(pass + " (run 2 of 3)"));
  EXPECT_THAT(junit, AllOf(HasSubstr("on rank 0 (fail in 2 of 3)\""), Not(HasSubstr("dq is wrong (fail in"))));
  EXPECT_THAT(read_file(path("r.html")), AllOf(HasSubstr("(run 2 of 3)"), HasSubstr("fail in 2 of 3")));
  EXPECT_THAT(call({"report", path("e")}).out, HasSubstr("fail in 2 of 3: " + pass));
}

// Returns the events as a run after a repair would have written them.
std::string repaired(std::string events) {
  const std::string fail = "\"outcome\":\"fail\"";
  events.replace(events.find(fail), fail.size(), "\"outcome\":\"pass\"");
  return events;
}

TEST_F(Reruns, AReportOfARunAndItsRerunCountsACaseOnceByTheLast) {
  ASSERT_EQ(run("model=pass | model=fail", {"--events", path("run")}).exit_code, 100);
  ASSERT_EQ(run("*", {"--rerun-failed", path("run"), "--events", path("again")}).exit_code, 100);
  write_file(path("good"), repaired(read_file(path("again"))));
  EXPECT_THAT(call({"report", path("run"), path("again")}),
              exits(100, last_line(StartsWith("2 expanded = 1 pass + 1 fail, "))));
  const Finished done =
      call({"report", path("good"), path("run"), "--junit", path("j.xml"), "--html", path("r.html"), "-v"});
  EXPECT_EQ(done.exit_code, 0) << "whatever the order of the files";
  EXPECT_THAT(done.last_line(), StartsWith("2 expanded = 2 pass + 0 fail, "));
  const std::string id = kFail;
  EXPECT_THAT(done.out, AllOf(HasSubstr(id + ": dq is wrong (first run: fail: dq is wrong)"),
                              HasSubstr("1 rerun, counted by the last run:\n  pass  " + id +
                                        ", first run: fail: dq is wrong\n")));
  EXPECT_THAT(read_file(path("j.xml")),
              AllOf(HasSubstr("tests=\"2\" failures=\"0\""), HasSubstr("[[PROPERTY|first_outcome=fail]]"),
                    HasSubstr("[[PROPERTY|first_reason=dq is wrong]]")));
  EXPECT_THAT(read_file(path("r.html")), HasSubstr("first run: fail: dq is wrong"));
}

TEST_F(Reruns, TheSameFileTwiceIsAnError) {
  ASSERT_EQ(run("model=pass", {"--events", path("e")}).exit_code, 0);
  std::filesystem::create_symlink(path("e"), path("link"));
  const Finished twice = call({"report", path("e"), path("link")});
  EXPECT_THAT(twice, refuses(2, path("e") + " and " + path("link") + " are the same file"));
  write_file(path("copy"), read_file(path("e")));
  EXPECT_THAT(call({"report", path("e"), path("copy")}), refuses(94, "hold the same run of " + path("demo.json")));
  write_file(path("joined"), read_file(path("e")) + read_file(path("e")));
  EXPECT_THAT(call({"report", path("joined")}), refuses(94, "joined holds a run of " + path("demo.json") + " twice"));
}

TEST_F(Reruns, ARepeatThatGivesOtherBitsIsAFailure) {
  const ScopedVariable hash{"CP_POOL_TEST_HASH", "seq"};
  EXPECT_EQ(run("model=pass").exit_code, 0);
  const Finished done = run("model=pass", {"--repeat", "3", "--junit", path("j.xml")});
  EXPECT_THAT(done, exits(100, last_line(StartsWith("3 expanded = 1 pass + 2 fail")),
                          out(HasSubstr("other bits than those of its first run in this one, on rank 0"),
                              HasSubstr("1 of 1 repeated: other output bits\n"))));
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr("failures=\"2\""));
  EXPECT_THAT(done.out, HasSubstr(" --repeat 3\n")) << "alone it cannot fail";
}

}  // namespace
}  // namespace cp_pool::test
