// Tests what `cp-pool run` shows on the terminal and writes into reports.
#include "driver/cli/testing/command_line_fixture.h"
#include "driver/cli/testing/terminal.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

using RunViews = CommandLine;

TEST_F(RunViews, EventsJunitAndLedgerTellTheSameStory) {
  EXPECT_THAT(run("!model=hang", {"--events", path("e.jsonl"), "--junit", path("j.xml")}),
              exits(100, last_line(StartsWith("6 expanded = 2 pass + 1 fail + 1 skip + 1 error + 1 crash, "))));
  const auto lines = json_lines(read_file(path("e.jsonl")));
  EXPECT_EQ(lines.front()["type"], "run_started");
  EXPECT_EQ(lines.back()["type"], "run_finished");
  EXPECT_EQ(lines.back()["counts"]["crash"], 1);
  EXPECT_EQ(lines.back()["exit_code"], 100);
  EXPECT_THAT(events_in(path("e.jsonl"), "case_finished"), SizeIs(6));
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr(R"(tests="6" failures="1" errors="2")"));
}

TEST_F(RunViews, WithoutProgressOnlyFailuresAndSummaryAreShown) {
  EXPECT_THAT(run("model=pass | model=fail", {"--no-progress"}).out, StartsWith("fail  demo/fail"));
}

TEST_F(RunViews, TimingsStandBeforeTheSummary) {
  const Finished done = run("model=pass", {"--timings"});
  EXPECT_THAT(done.out, HasSubstr("    1  forward               1    1.5 ms    1.5 ms    1.5 ms    1.5 ms\n"));
  EXPECT_THAT(done.last_line(), StartsWith("1 expanded"));
}

TEST_F(RunViews, OnATerminalALineShowsForHowLongACaseHasBeenRunning) {
  Terminal terminal{program_words("model=hang", {"--timeout", "4s"})};
  // A busy machine may miss any given second.
  EXPECT_THAT(terminal.until("1 expanded = "), ContainsRegex("   0:0[1-4] demo/hang/p2p/cp1/bshd/fp32"));
  EXPECT_EQ(terminal.wait(), 100);
}

// Stderr is a file here, so the warning is a line of its own.
TEST_F(RunViews, ASlowCaseIsSaidOnStderrAndIsAnEvent) {
  const Finished done = run("model=hang", {"--slow-after", "1ms", "--timeout", "300ms", "--events", path("e")});
  EXPECT_THAT(done.err, StartsWith("cp-pool: slow: demo/hang/p2p/cp1/bshd/fp32 has been running for "));
  EXPECT_THAT(done.err, HasSubstr(" on pool cpu/1 #1, no phase reported; its deadline is 300 ms (--timeout)\n"));
  EXPECT_THAT(done.out, Not(HasSubstr("slow")));
  const auto told = events_in(path("e"), "case_progress");
  EXPECT_THAT(told, SizeIs(std::ranges::count(done.err, '\n')));
  EXPECT_LT(told.size(), 20U) << "the intervals grow: 1, 2, 4, .. 256 ms; equal ones would be 300";
  EXPECT_THAT(call({"report", path("e")}).err, "") << "it is over";
}

}  // namespace
}  // namespace cp_pool::test
