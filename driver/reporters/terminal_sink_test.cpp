#include "driver/reporters/terminal_sink.h"

#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <pty.h>
#include <string>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"
#include "driver/reporters/output_file.h"
#include "driver/testing/example_events.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool {
namespace {

using test::failed_case;
using test::finished;
using test::pool_ready;
using test::pool_retired;
using test::run_finished;
using test::run_started;
using test::ScopedVariable;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// What the sink writes to a file.
std::string captured(TerminalStyle style, const std::vector<Event>& events) {
  const test::TemporaryFolder folder;
  const int fd = ::open((folder / "out").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  {
    TerminalSink sink{fd, style};
    for (const Event& event : events) sink.on_event(event);
  }
  ::close(fd);
  return test::read_file(folder / "out");
}

std::vector<Event> small_run() {
  CaseStarted started;
  started.id = "a";
  return {run_started(3),
          pool_ready(),
          started,
          finished(0, "a", CaseOutcome::pass),
          failed_case(1, "b"),
          finished(2, "c", CaseOutcome::skip, "no bias yet"),
          pool_retired(RetireReason::finished),
          run_finished({1, 1, 1, 0, 0, 0, 0, 0, 0})};
}

TEST(PlainTerminal, CutsWhatAWorkerSaysInMegabytes) {
  const std::string long_text(std::size_t{3} << 20U, 'x');
  CaseFinished failed = failed_case(0, "a");
  failed.reason = long_text;
  const std::string out = captured({}, {failed, finished(1, "b", CaseOutcome::skip, long_text)});
  EXPECT_THAT(out, HasSubstr("xx\n    [cut: 31"));
  EXPECT_THAT(out, HasSubstr("b: xx"));
  EXPECT_THAT(out, HasSubstr("xx [cut: 3145728 bytes in all]\n"));
  EXPECT_LT(out.size(), std::size_t{80} << 10U);
}

TEST(PlainTerminal, MarksAPassWithoutFiguresAndCountsItAtTheEnd) {
  CaseFinished event = finished(0, "a", CaseOutcome::pass);
  event.checks.clear();
  const std::string out = captured({}, {run_started(1), event, run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0})});
  EXPECT_THAT(out, HasSubstr("pass      1/1   100 ms  a (unverified by figures)\n"));
  EXPECT_THAT(out, HasSubstr("\n1 unverified by figures: the worker says pass, and gives no check with"));
}

TEST(PlainTerminal, GivesALineACaseFailuresInFullAndTheLedgerLast) {
  EXPECT_EQ(captured({}, small_run()),
            "cp-pool 0.1.0: 3 cases of te-flash (small) on cpu\n"
            "pool cpu/2 #1 ready in 812 ms: cp-pool-worker 0.1.0, 2 ranks\n"
            "pass      1/3   100 ms  a\n"
            "fail  b after 200 ms on pool cpu/2 #1\n"
            "    dq is wrong on rank 1\n"
            "    rank 1: dq: error 0.031 > bound 0.012 at [0, 17, 3] (baseline 0.005, max_abs 0.04, rms 0.001)\n"
            "    rank 0 error:\n"
            "      first line\n"
            "      second line\n"
            "    rank 0 stderr:\n"
            "      | hello from rank 0\n"
            "    rank 1 stderr (unfenced):\n"
            "      | one\n"
            "      | two\n"
            "    rerun: cp-pool run --matrix te-flash --size small --filter b\n"
            "skip      3/3   300 ms  c: no bias yet\n"
            "2 ran: p50 100 ms, p95 200 ms, max 200 ms a case\n"
            "1 skip: no bias yet\n"
            "3 expanded = 1 pass + 1 fail + 1 skip, 41.2 s\n");
}

TEST(PlainTerminal, SeveralFailuresAreListedBeforeTheLedger) {
  RunStarted run = run_started(2);
  run.rerun_failed = "cp-pool run --rerun-failed e";
  const std::string text =
      captured({}, {run, failed_case(0, "a"), failed_case(1, "b"), run_finished({0, 2, 0, 0, 0, 0, 0, 0, 0})});
  EXPECT_THAT(text, HasSubstr("a case\n"
                              "2 failed:\n"
                              "  fail     2 cases: dq is wrong on rank 1\n"
                              "           a\n"
                              "           b\n"
                              "rerun them: cp-pool run --rerun-failed e\n"
                              "2 expanded = 0 pass + 2 fail, "));
}

TEST(PlainTerminal, OfEqualFailuresTheFirstIsShownInFull) {
  const std::string text = captured({}, {failed_case(0, "a"), failed_case(1, "b"), failed_case(2, "c")});
  EXPECT_THAT(text, HasSubstr("rerun: cp-pool run --matrix te-flash --size small --filter a\n"
                              "fail  b after 200 ms on pool cpu/2 #1: the same as a\n"
                              "fail  c after 300 ms on pool cpu/2 #1: the same as a\n"));
}

TEST(PlainTerminal, TheReasonOfAStartFailureStandsOnce) {
  const std::string reason = "rank 1 died: exit 1; last words of rank 1: no license";
  std::vector<Event> events{run_started(2)};
  for (int generation = 1; generation <= 3; ++generation) {
    PoolRetired retired = pool_retired(RetireReason::start_failed, reason);
    retired.pool.generation = generation;
    events.emplace_back(retired);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    CaseFinished infra = finished(i, "a", CaseOutcome::infra, "the pool failed to start 3 times running: " + reason);
    infra.stderr_tails = {{.rank = 0, .text = "looking for it\n", .fenced = true},
                          {.rank = 1, .text = "no license\n", .fenced = true}};
    events.emplace_back(infra);
  }
  events.emplace_back(run_finished({0, 0, 0, 0, 0, 0, 2, 0, 0}));
  EXPECT_EQ(captured({}, events),
            "cp-pool 0.1.0: 2 cases of te-flash (small) on cpu\n"
            "pool cpu/2 #1 did not start: rank 1 died: exit 1; last words of rank 1: no license\n"
            "pool cpu/2 #2 did not start, as pool cpu/2 #1\n"
            "pool cpu/2 #3 did not start, as pool cpu/2 #1\n"
            "infra  the pool failed to start 3 times running\n"
            "    rank 0 stderr:\n"
            "      | looking for it\n"
            "2 infra (not run): the pool failed to start 3 times running\n"
            "2 expanded = 0 pass + 0 fail + 2 infra, 41.2 s\n");
}

TEST(PlainTerminal, APoolIsGivenUpWithoutTheReasonThatItsCaseHasSaid) {
  const std::string text = captured({}, {finished(0, "a", CaseOutcome::crash, "rank 1 died: exit 3 (in forward)"),
                                         pool_retired(RetireReason::crash, "rank 1 died: exit 3")});
  EXPECT_THAT(text, HasSubstr("pool cpu/2 #1 given up after 3 cases: crash\n"));
}

TEST(PlainTerminal, WithoutProgressOnlyFailuresAndTheSummaryRemain) {
  const std::string text = captured({.progress = false}, small_run());
  EXPECT_EQ(text.find("fail  b"), 0U);
  EXPECT_THAT(text, Not(HasSubstr("pass      1/3")));
  EXPECT_THAT(text, HasSubstr("\n3 expanded ="));
}

TEST(PlainTerminal, AReplacedPoolSaysWhyInOneLine) {
  const std::string text =
      captured({}, {pool_retired(RetireReason::crash, "rank 1 died:\nsignal 11 (SIGSEGV)"), pool_ready(2)});
  EXPECT_EQ(text,
            "pool cpu/2 #1 given up after 3 cases: crash: rank 1 died: signal 11 (SIGSEGV)\n"
            "pool cpu/2 #2 ready in 812 ms: cp-pool-worker 0.1.0, 2 ranks (replaces #1: crash)\n");
}

TEST(PlainTerminal, APauseIsSaidAndThePoolThatItReplacedIsNoNews) {
  const std::string output =
      captured({}, {RunPaused{61000, true}, pool_retired(RetireReason::paused), pool_ready(2), RunPaused{2000, false}});
  EXPECT_THAT(output, HasSubstr("paused for 1 m 01 s\n"));
  EXPECT_THAT(output, HasSubstr("paused for 2.00 s: cp-pool alone, its ranks went on\n"));
  EXPECT_THAT(output, HasSubstr("(replaces #1: paused)"));
  EXPECT_THAT(output, Not(HasSubstr("given up")));
}

TEST(PlainTerminal, AProcessLeftBehindIsNamedWhateverTheReason) {
  PoolRetired event = pool_retired(RetireReason::finished);
  event.leftovers = {{.pid = 123, .state = "D", .wchan = "nfs_wait"}};
  EXPECT_EQ(captured({.progress = false}, {event}),
            "pool cpu/2 #1 left process 123 behind (state D, wchan nfs_wait)\n");
}

TEST(PlainTerminal, AnInterruptedRunSaysSo) {
  RunFinished event = run_finished({1, 0, 0, 0, 0, 0, 0, 1, 2});
  event.interrupted = true;
  EXPECT_THAT(captured({}, {event}), HasSubstr("interrupted: the run was stopped before its end\n4 expanded ="));
}

TEST(PlainTerminal, CasesThatAreNotRunAreCountedAtTheEndAndTheirWorkersStderrIsShownOnce) {
  std::vector<Event> events{run_started(4)};
  for (std::size_t i = 0; i < 3; ++i) {
    CaseFinished infra = finished(i, "a", CaseOutcome::infra, "the pool cannot start");
    infra.stderr_tails = {{.rank = 0, .text = "no license\n", .fenced = true}};
    events.emplace_back(infra);
  }
  events.emplace_back(finished(3, "b", CaseOutcome::not_run, "interrupted"));
  events.emplace_back(run_finished({0, 0, 0, 0, 0, 0, 3, 0, 1}));
  EXPECT_EQ(captured({}, events),
            "cp-pool 0.1.0: 4 cases of te-flash (small) on cpu\n"
            "infra  the pool cannot start\n"
            "    rank 0 stderr:\n"
            "      | no license\n"
            "3 infra (not run): the pool cannot start\n"
            "1 not-run: interrupted\n"
            "4 expanded = 0 pass + 0 fail + 3 infra + 1 not-run, 41.2 s\n");
}

TEST(PlainTerminal, WritesNoEscapeSequences) {
  EXPECT_THAT(captured({}, small_run()), Not(HasSubstr("\x1b")));
  EXPECT_THAT(captured({.color = true}, small_run()), HasSubstr("\x1b[1;31mfail\x1b[0m"));
}

TEST(PlainTerminal, ColoursTheLedgerByWhetherAllIsWell) {
  const std::string red = "\x1b[1;31m";
  const std::string green = "\x1b[32m";
  const auto last_line = [](const RunFinished& event) { return captured({.color = true}, {event}); };
  EXPECT_THAT(last_line(run_finished({1, 0, 1, 0, 0, 0, 0, 0, 0})), HasSubstr(green + "2 expanded"));
  EXPECT_THAT(last_line(run_finished({1, 0, 0, 1, 0, 0, 0, 0, 0})), HasSubstr(red + "2 expanded"));
  EXPECT_THAT(last_line(run_finished({1, 0, 0, 0, 0, 0, 1, 0, 0})), HasSubstr(red + "2 expanded"));
  RunFinished skipped = run_finished({1, 0, 1, 0, 0, 0, 0, 0, 0});
  skipped.exit_code = exit_code(skipped, {.no_skip = true});
  EXPECT_THAT(last_line(skipped), HasSubstr(red + "2 expanded"));
  RunFinished inexact = run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0});
  inexact.ledger_exact = false;
  inexact.exit_code = exit_code(inexact, {});
  EXPECT_THAT(last_line(inexact), HasSubstr(red + "1 expanded"));
}

TEST(PlainTerminal, AFailureSaysThatTheCaseWasSentTwice) {
  CaseFinished event = failed_case(0, "a");
  EXPECT_THAT(captured({}, {event}), Not(HasSubstr("attempt")));
  event.attempts = 2;
  EXPECT_THAT(captured({}, {event}), HasSubstr(" on pool cpu/2 #1, attempt 2\n"));
}

TEST(TerminalSink, AClosedTerminalIsAnError) {
  TerminalSink sink{::open("/dev/full", O_WRONLY | O_CLOEXEC), {}};
  EXPECT_THROW(sink.on_event(run_started(1)), OutputError);
}

// --- On a terminal ---------------------------------------------------------------------------------------------------

constexpr unsigned short kColumns = 60;

struct Screen {
  std::vector<std::string> lines{""};
  std::vector<std::string> live;  // the last line each time a live line was complete
  bool overflowed = false;        // a line ran past the last column
};

// Just enough of a terminal: carriage return, newline, erase to end of line, auto-wrap off and on.
Screen replay(const std::string& output) {
  Screen screen;
  std::size_t column = 0;
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (output.compare(i, 3, "\x1b[K") == 0) {
      screen.lines.back().resize(std::min(column, screen.lines.back().size()));
      i += 2;
    } else if (output.compare(i, 5, "\x1b[?7l") == 0) {
      i += 4;
    } else if (output.compare(i, 5, "\x1b[?7h") == 0) {
      screen.live.push_back(screen.lines.back());
      i += 4;
    } else if (output[i] == '\r') {
      column = 0;
    } else if (output[i] == '\n') {
      screen.lines.emplace_back();
      column = 0;
    } else {
      std::string& line = screen.lines.back();
      if (line.size() <= column) line.resize(column + 1, ' ');
      line[column++] = output[i];
      screen.overflowed |= column > kColumns;
    }
  }
  return screen;
}

// Runs the action against a pseudo terminal and gives all that came out of it.
std::string on_pty(const std::function<void(int)>& action, unsigned short columns = kColumns) {
  int master = -1;
  int slave = -1;
  winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  EXPECT_EQ(::openpty(&master, &slave, nullptr, nullptr, &size), 0);
  action(slave);
  ::close(slave);
  std::string output;
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = ::read(master, buffer.data(), buffer.size())) > 0;) {  // ends with EIO
    output.append(buffer.data(), static_cast<std::size_t>(n));
  }
  ::close(master);
  return output;
}

std::string on_pty(const std::vector<Event>& events, unsigned short columns = kColumns) {
  return on_pty(
      [&](int fd) {
        TerminalSink sink{fd, {.live = true}};
        for (const Event& event : events) sink.on_event(event);
      },
      columns);
}

TEST(LiveTerminal, TheLiveLineIsRedrawnInPlaceAndLeavesNothingBehind) {
  const Screen screen = replay(
      on_pty({run_started(3), pool_ready(), finished(0, "a", CaseOutcome::pass), finished(1, "b", CaseOutcome::pass),
              finished(2, "c", CaseOutcome::pass), run_finished({3, 0, 0, 0, 0, 0, 0, 0, 0})}));
  EXPECT_THAT(screen.lines, ElementsAre("cp-pool 0.1.0: 3 cases of te-flash (small) on cpu",
                                        "pool cpu/2 #1 ready in 812 ms: cp-pool-worker 0.1.0, 2 ranks",
                                        "3 ran: p50 200 ms, p95 300 ms, max 300 ms a case",
                                        "3 expanded = 3 pass + 0 fail, 41.2 s", ""));
  ASSERT_THAT(screen.live, Not(SizeIs(0)));
  EXPECT_THAT(screen.live.back(), HasSubstr("3/3 3 pass"));
}

TEST(LiveTerminal, FailuresStandAboveTheLiveLine) {
  const Screen screen = replay(on_pty({run_started(2), failed_case(0, "b"), finished(1, "c", CaseOutcome::pass)}));
  EXPECT_THAT(screen.lines[1], HasSubstr("fail  b after"));
  EXPECT_THAT(screen.lines[screen.lines.size() - 2], HasSubstr("rerun: cp-pool run"));
  EXPECT_EQ(screen.lines.back(), "");  // the destructor took the live line away
  EXPECT_THAT(screen.live.back(), HasSubstr("2/2 1 pass 1 fail"));
}

TEST(LiveTerminal, ALongIdNeverMakesTheLiveLineWiderThanTheTerminal) {
  CaseStarted started;
  started.id = std::string(500, 'x');
  const Screen screen = replay(on_pty({run_started(2), started, started}));
  EXPECT_FALSE(screen.overflowed);
  EXPECT_THAT(screen.live.back(), SizeIs(kColumns - 1));
}

TEST(LiveTerminal, ShowsTheCaseThatHasBeenRunningLongest) {
  const auto started = [](std::size_t index, const std::string& id) {
    CaseStarted event;
    event.index = index;
    event.id = id;
    return event;
  };
  constexpr unsigned short kWide = 200;
  const Screen screen =
      replay(on_pty({run_started(3), started(0, "first"), started(1, "second"), finished(0, "first", CaseOutcome::pass),
                     finished(1, "second", CaseOutcome::pass)},
                    kWide));
  ASSERT_THAT(screen.live, SizeIs(5));
  EXPECT_THAT(screen.live[2], HasSubstr("| first"));
  EXPECT_THAT(screen.live[3], HasSubstr("| second"));
  EXPECT_THAT(screen.live[4], Not(HasSubstr("second")));
}

TEST(LiveTerminal, IsDrawnAnewAsTimePasses) {
  const Screen screen = replay(on_pty([](int fd) {
    TerminalSink sink{fd, {.live = true}};
    sink.on_event(run_started(2));
    for (int i = 0; i < 3; ++i) sink.on_tick();
    sink.on_event(run_finished({2, 0, 0, 0, 0, 0, 0, 0, 0}));
    sink.on_tick();
  }));
  EXPECT_THAT(screen.live, SizeIs(4));
  EXPECT_THAT(screen.lines, ElementsAre(HasSubstr("2 cases"), HasSubstr("2 expanded"), ""));
}

TEST(LiveTerminal, IsClearedForOtherOutputAndComesBack) {
  const Screen screen = replay(on_pty([](int fd) {
    TerminalSink sink{fd, {.live = true}};
    sink.on_event(run_started(2));
    sink.clear_live();
    write_all(fd, "cp-pool: error: disk full\n", "the pty");
    sink.on_event(finished(0, "a", CaseOutcome::pass));
    sink.on_event(finished(1, "b", CaseOutcome::pass));
  }));
  EXPECT_THAT(screen.lines, ElementsAre(HasSubstr("2 cases"), "cp-pool: error: disk full", ""));
  EXPECT_THAT(screen.live.back(), HasSubstr("2/2"));
}

// --- Detection -------------------------------------------------------------------------------------------------------

TEST(DetectStyle, AFileGetsPlainLines) {
  const test::TemporaryFolder folder;
  const OutputFile file{folder / "f"};
  const int fd = ::open((folder / "f").c_str(), O_WRONLY | O_CLOEXEC);
  const TerminalStyle style = detect_style(fd, true);
  ::close(fd);
  EXPECT_FALSE(style.live);
  EXPECT_FALSE(style.color);
  EXPECT_TRUE(style.progress);
}

TEST(DetectStyle, ATerminalGetsALiveLineAndColorUnlessTheUserSaysNo) {
  const ScopedVariable term{"TERM", "xterm"};
  const ScopedVariable color{"NO_COLOR", nullptr};
  on_pty([](int fd) {
    EXPECT_TRUE(detect_style(fd, true).live);
    EXPECT_TRUE(detect_style(fd, true).color);
    EXPECT_FALSE(detect_style(fd, false).live);
    {
      const ScopedVariable no_color{"NO_COLOR", "1"};
      EXPECT_FALSE(detect_style(fd, true).color);
      EXPECT_TRUE(detect_style(fd, true).live);
    }
    {
      const ScopedVariable dumb{"TERM", "dumb"};
      EXPECT_FALSE(detect_style(fd, true).live);
      EXPECT_FALSE(detect_style(fd, true).color);
    }
  });
}

}  // namespace
}  // namespace cp_pool
