// `cp-pool report` on the events of one run, of several, and of one that was killed.
#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

using ReportProgram = CommandLine;

TEST_F(ReportProgram, AReportOfTheEventsIsThatOfTheRun) {
  const Words more = {"--events", path("e"), "--junit", path("j.xml"), "--html", path("r.html"), "--timings"};
  const Finished done = run("!model=hang", {more.begin(), more.end()});
  EXPECT_THAT(call({"report", path("e"), "--junit", path("j2.xml"), "--html", path("r2.html"), "--timings"}),
              exits(done.exit_code, last_line(done.last_line())));
  EXPECT_EQ(read_file(path("j2.xml")), read_file(path("j.xml")));
  EXPECT_THAT(read_file(path("r.html")), HasSubstr("\nrerun them: "));
  EXPECT_EQ(read_file(path("r2.html")), read_file(path("r.html")));
}

TEST_F(ReportProgram, AReportOfARunThatWasKilledHasWhatItLeft) {
  ASSERT_EQ(run("model=pass* | model=skip", {"--events", path("e")}).exit_code, 0);
  std::string events = read_file(path("e"));
  events.resize(events.find("\"type\":\"case_started\""));
  write_file(path("e"), events);
  EXPECT_THAT(call({"report", path("e"), "--junit", path("j.xml")}),
              exits(100, last_line(StartsWith("3 expanded = 0 pass + 0 fail + 3 not-run"))));
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr("demo/pass_2/p2p/cp1/bshd/fp32"));
}

TEST_F(ReportProgram, AReportOfSeveralRunsIsAsOfOne) {
  ASSERT_EQ(run("model=pass* | model=skip", {"--shard", "1/2", "--events", path("1")}).exit_code, 0);
  ASSERT_EQ(run("model=pass* | model=skip", {"--shard", "2/2", "--events", path("2")}).exit_code, 0);
  EXPECT_THAT(call({"report", path("1"), path("2"), "--html", path("r.html")}),
              exits(0, last_line(StartsWith("3 expanded = 2 pass + 0 fail + 1 skip"))));
  EXPECT_THAT(read_file(path("r.html")), AllOf(HasSubstr("shard 1/2; "), HasSubstr("cpu/1 #2")));
  EXPECT_EQ(call({"report", path("1"), path("2"), "--no-skip"}).exit_code, 96);
}

TEST_F(ReportProgram, AReportOfAnIncompleteSetOfShardsSaysWhichAreMissing) {
  const auto shard = [&](const std::string& part, const std::string& filter = "model=pass* | model=skip") {
    EXPECT_EQ(run(filter, {"--shard", part, "--events", path(part.substr(0, 1))}).exit_code, 0);
  };
  for (const char* const part : {"1/3", "2/3", "3/3"}) shard(part);
  const std::string missing = "shards 1, 3 of 3 of " + path("demo.json") + " are missing: there are 1 of 3 cases";
  const auto report = [&](const Words& files, const Words& more = {}) {
    Words words = {"report"};
    for (const std::string& file : files) words.push_back(path(file));
    return call(with(words, more));
  };
  EXPECT_THAT(report({"2"}, {"--junit", path("junit"), "--html", path("html"), "--summary", path("md"), "--annotate",
                             "github"}),
              exits(96, last_line(HasSubstr("(incomplete: " + missing + ")")),
                    err(HasSubstr("::error title=the report is incomplete::" + missing),
                        HasSubstr("cp-pool: error: the report is incomplete, without --partial"))));
  for (const char* const page : {"junit", "html", "md"}) EXPECT_THAT(read_file(path(page)), HasSubstr(missing)) << page;
  EXPECT_THAT(read_file(path("junit")), HasSubstr("<error type=\"infra\" message=\"" + missing));

  EXPECT_THAT(report({"2"}, {"--partial", "--junit", path("junit")}), exits(0, last_line(HasSubstr(missing))));
  EXPECT_THAT(read_file(path("junit")), HasSubstr("<skipped type=\"not-run\" message=\"" + missing));

  const Finished all = report({"3", "1", "2"});
  EXPECT_THAT(all, exits(0, last_line(StartsWith("3 expanded = 2 pass"), Not(HasSubstr("incomplete")))));
  EXPECT_EQ(call({"show"}).exit_code, 0) << "the last run, which is no report of all";

  shard("2/3", "model=pass*");
  EXPECT_THAT(report({"1", "2", "3"}), exits(96, last_line(HasSubstr("shard 2 of 3 of " + path("demo.json") +
                                                                     " is missing: there are 2 of 3 "
                                                                     "cases (shard 2 is of another selection)"))));
}

TEST_F(ReportProgram, AReportOfWhatIsNoEventsFileIsRefused) {
  write_file(path("half"), R"({"v":1,"type":"case_started","id":"a"})"
                           "\n");
  EXPECT_EQ(call({"report"}).exit_code, 2);
  write_file(path("empty"), "");
  ASSERT_EQ(run("model=pass", {"--events", path("e")}).exit_code, 0);
  for (const std::string& file : {path("none"), path("half"), path("demo.json"), path("empty")}) {
    EXPECT_THAT(call({"report", path("e"), file}), refuses(94, file)) << file;
  }
}

}  // namespace
}  // namespace cp_pool::test
