#include "driver/report/terminal_sink.h"

#include <algorithm>
#include <fcntl.h>
#include <functional>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/report/output_file.h"
#include "driver/testing/example_events.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

// Returns what the sink writes to a file.
std::string captured(TerminalStyle style, const std::vector<Event>& events) {
  const TemporaryFolder folder;
  const int fd = ::open((folder / "out").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  {
    TerminalSink sink{fd, style};
    for (const Event& event : events) sink.on_event(event);
  }
  ::close(fd);
  return read_file(folder / "out");
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

TEST(PlainTerminal, WithoutProgressOnlyFailuresAndTheSummaryRemain) {
  const std::string text = captured({.progress = false}, small_run());
  EXPECT_EQ(text.find("fail  b"), 0U);
  EXPECT_THAT(text, HasSubstr("\nimplementation: own\n"));
  EXPECT_THAT(text, Not(HasSubstr("pass      1/3")));
  EXPECT_THAT(text, HasSubstr("\n3 expanded ="));
}

TEST(PlainTerminal, APoolThatACaseHasEndedIsGivenUpWithoutTheReasonOfTheCase) {
  const CaseFinished crash = finished(0, "a", CaseOutcome::crash, "rank 1 died: exit 3 (in forward)");
  EXPECT_THAT(captured({}, {crash, pool_retired(RetireReason::crash, "rank 1 died: exit 3")}),
              HasSubstr("pool cpu/2 #1 given up after 3 cases: crash\n"));
  EXPECT_THAT(captured({}, {crash, pool_retired(RetireReason::crash, "rank 0 died: exit 3")}),
              HasSubstr("pool cpu/2 #1 given up after 3 cases: crash: rank 0 died: exit 3\n"));
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

TEST(TerminalSink, AClosedTerminalIsAnError) {
  TerminalSink sink{::open("/dev/full", O_WRONLY | O_CLOEXEC), {}};
  EXPECT_THROW(sink.on_event(run_started(1)), OutputError);
}

// --- On a terminal ---------------------------------------------------------------------------------------------------

constexpr unsigned short kColumns = 60;

struct Screen {
  std::vector<std::string> lines{""};            // all lines ever shown; the last ones are on the screen
  std::vector<std::vector<std::string>> frames;  // the lines at the bottom each time the live lines were complete
  bool overflowed = false;                       // a line ran past the last column

  [[nodiscard]] std::string last_frame() const {
    std::string out;
    for (const std::string& line : frames.back()) out += line + '\n';
    return out;
  }
};

// A minimal terminal: carriage return, newline, cursor up, erase to the end of the line and below, auto-wrap off and
// on.
Screen replay(const std::string& output) {
  Screen screen;
  std::size_t row = 0;
  std::size_t column = 0;
  std::size_t frame = 0;  // the row where the frame begins
  for (std::size_t i = 0; i < output.size(); ++i) {
    std::string& line = screen.lines[row];
    if (output[i] == '\x1b' && i + 1 < output.size() && output[i + 1] == '[') {
      const std::size_t end = output.find_first_of("AJKlh", i);
      const std::string sequence = output.substr(i + 2, end - i - 2);
      if (output[end] == 'A') row -= std::min(row, std::stoul(sequence));
      if (output[end] == 'K' || output[end] == 'J') line.resize(std::min(column, line.size()));
      if (output[end] == 'J') screen.lines.resize(row + 1);
      if (output[end] == 'l') frame = row;
      if (output[end] == 'h') {
        screen.frames.emplace_back(screen.lines.begin() + static_cast<std::ptrdiff_t>(frame),
                                   screen.lines.begin() + static_cast<std::ptrdiff_t>(row) + 1);
      }
      i = end;
    } else if (output[i] == '\r') {
      column = 0;
    } else if (output[i] == '\n') {
      ++row;
      if (row == screen.lines.size()) screen.lines.emplace_back();
      column = 0;
    } else {
      if (line.size() <= column) line.resize(column + 1, ' ');
      line[column++] = output[i];
      screen.overflowed |= column > kColumns;
    }
  }
  return screen;
}

// Runs the action on a pseudo terminal and returns its output.
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

// Draws every frame, even one that follows another at once.
const TerminalStyle kEachFrame{.live = true, .frame_interval = std::chrono::milliseconds{0}};

std::string on_pty(const std::vector<Event>& events, unsigned short columns = kColumns) {
  return on_pty(
      [&](int fd) {
        TerminalSink sink{fd, kEachFrame};
        for (const Event& event : events) sink.on_event(event);
      },
      columns);
}

CaseStarted case_started(std::size_t index, const std::string& id) {
  CaseStarted event;
  event.index = index;
  event.id = id;
  return event;
}

TEST(LiveTerminal, TheLiveLinesAreRedrawnInPlaceAndLeaveNothingBehind) {
  const Screen screen =
      replay(on_pty({run_started(3), pool_ready(), case_started(0, "a"), case_started(1, "b"),
                     finished(0, "a", CaseOutcome::pass), finished(1, "b", CaseOutcome::pass),
                     finished(2, "c", CaseOutcome::pass), run_finished({3, 0, 0, 0, 0, 0, 0, 0, 0})}));
  EXPECT_THAT(screen.lines, ElementsAre("cp-pool 0.1.0: 3 cases of te-flash (small) on cpu, implementation: own",
                                        "pool cpu/2 #1 ready in 812 ms: cp-pool-worker 0.1.0, 2 ranks",
                                        "3 ran: p50 200 ms, p95 300 ms, max 300 ms a case",
                                        "3 expanded = 3 pass + 0 fail, 41.2 s", ""));
  ASSERT_THAT(screen.frames, Not(SizeIs(0)));
  EXPECT_THAT(screen.last_frame(), HasSubstr("3/3 3 pass"));
}

TEST(LiveTerminal, FailuresStandAboveTheLiveLines) {
  const Screen screen =
      replay(on_pty({run_started(2), case_started(1, "c"), failed_case(0, "b"), finished(1, "c", CaseOutcome::pass)}));
  EXPECT_THAT(screen.lines[1], HasSubstr("fail  b after"));
  EXPECT_THAT(screen.lines[screen.lines.size() - 2], HasSubstr("rerun: cp-pool run"));
  EXPECT_EQ(screen.lines.back(), "");  // the destructor has removed the live lines
  EXPECT_THAT(screen.last_frame(), HasSubstr("2/2 1 pass 1 fail"));
}

TEST(LiveTerminal, ALongIdNeverMakesALineWiderThanTheTerminal) {
  const CaseStarted started = case_started(0, std::string(500, 'x'));
  RunStarted header = run_started(2);
  header.implementations.clear();  // the first line of the run wraps as any text does, and is short without them
  const Screen screen = replay(on_pty({header, started, started}));
  EXPECT_FALSE(screen.overflowed);
  EXPECT_THAT(screen.frames.back().front(), SizeIs(kColumns - 1));
}

TEST(LiveTerminal, EveryRunningCaseHasALineWithItsPhaseTheOldestFirst) {
  CaseProgress progress;
  progress.index = 1;
  progress.phase = "backward";
  PoolSpawned spawned;
  spawned.pool = {"cpu/4", 2};
  const Screen screen =
      replay(on_pty({run_started(3), case_started(0, "first"), case_started(1, "second"), spawned, progress,
                     finished(0, "first", CaseOutcome::pass), finished(1, "second", CaseOutcome::pass)}));
  ASSERT_THAT(screen.frames, SizeIs(7));
  EXPECT_THAT(screen.frames[4], ElementsAre("   0:00 first", "   0:00 second (backward)",
                                            "   0:00 pool cpu/4 #2 starts", HasSubstr("0/3")));
  EXPECT_THAT(screen.frames[5],
              ElementsAre("   0:00 second (backward)", "   0:00 pool cpu/4 #2 starts", HasSubstr("1/3 1 pass")));
  EXPECT_THAT(screen.frames[6], ElementsAre("   0:00 pool cpu/4 #2 starts", HasSubstr("2/3 2 pass")));
}

TEST(LiveTerminal, MoreCasesThanLinesAreCounted) {
  // Few frames are drawn, since nobody reads them before the end.
  const Screen screen = replay(on_pty([](int fd) {
    TerminalSink sink{fd, {.live = true, .frame_interval = std::chrono::hours{1}}};
    sink.on_event(run_started(100));
    for (std::size_t i = 0; i < 40; ++i) sink.on_event(case_started(i, "c" + std::to_string(i)));
    sink.on_event(failed_case(99, "b"));
  }));
  ASSERT_THAT(screen.frames.back(), SizeIs(23)) << "of a terminal with 24";
  EXPECT_THAT(screen.last_frame(),
              AllOf(HasSubstr("0:00 c20\n"), HasSubstr("        and 19 more\n"), Not(HasSubstr("c21"))));
}

// A terminal that rewraps lines shows the two live lines, of 59 columns each, on four rows when it is 40 columns wide.
TEST(LiveTerminal, ANarrowerTerminalLosesNoLineAndKeepsNoneOfTheOldFrame) {
  const auto resized = [](bool reflows) {
    return on_pty([&](int fd) {
      TerminalSink sink{fd, {.live = true, .reflows = reflows, .frame_interval = std::chrono::milliseconds{0}}};
      sink.on_event(run_started(2));
      sink.on_event(case_started(0, std::string(500, 'x')));
      const winsize narrow{.ws_row = 24, .ws_col = 40, .ws_xpixel = 0, .ws_ypixel = 0};
      ASSERT_EQ(::ioctl(fd, TIOCSWINSZ, &narrow), 0);
      sink.on_tick();
      sink.on_event(run_finished({2, 0, 0, 0, 0, 0, 0, 0, 0}));
    });
  };
  EXPECT_THAT(resized(true), AllOf(HasSubstr("\r\x1b[2A\x1b[J\x1b[?7l"), Not(HasSubstr("\x1b[3A"))));
  EXPECT_THAT(resized(false), AllOf(HasSubstr("\r\x1b[1A\x1b[J\x1b[?7l"), Not(HasSubstr("\x1b[2A"))));
}

TEST(LiveTerminal, FramesThatComeTooSoonAreLeftToTheNextTick) {
  const Screen screen = replay(on_pty([](int fd) {
    TerminalSink sink{fd, {.live = true, .frame_interval = std::chrono::hours{1}}};
    sink.on_event(run_started(2));
    for (std::size_t i = 0; i < 50; ++i) sink.on_event(case_started(i, "c"));
    sink.on_event(failed_case(0, "b"));
  }));
  EXPECT_THAT(screen.frames, SizeIs(2)) << "one below each line that was printed";
  EXPECT_THAT(screen.last_frame(), HasSubstr("1/2 1 fail"));
}

TEST(LiveTerminal, TheEtaGoesByTheTimesOfEarlierRuns) {
  RunStarted run = run_started(3);
  run.ids = {"quick", "slow", "new"};
  run.earlier_ms = {1, 1e12, std::nullopt};
  const Screen screen = replay(on_pty([&](int fd) {
    TerminalSink sink{fd, kEachFrame};
    sink.on_event(run);
    sink.on_event(case_started(0, "quick"));
    sink.on_event(finished(0, "quick", CaseOutcome::pass));
  }));
  EXPECT_THAT(screen.last_frame(), ContainsRegex("ETA [0-9]+:[0-9][0-9]:[0-9][0-9]"))
      << "hours, not twice what it took";
}

TEST(LiveTerminal, IsDrawnAnewAsTimePasses) {
  const Screen screen = replay(on_pty([](int fd) {
    TerminalSink sink{fd, kEachFrame};
    sink.on_event(run_started(2));
    for (int i = 0; i < 3; ++i) sink.on_tick();
    sink.on_event(run_finished({2, 0, 0, 0, 0, 0, 0, 0, 0}));
    sink.on_tick();
  }));
  EXPECT_THAT(screen.frames, SizeIs(4));
  EXPECT_THAT(screen.lines, ElementsAre(HasSubstr("2 cases"), HasSubstr("2 expanded"), ""));
}

TEST(LiveTerminal, IsClearedForOtherOutputAndComesBack) {
  const Screen screen = replay(on_pty([](int fd) {
    TerminalSink sink{fd, kEachFrame};
    sink.on_event(run_started(2));
    sink.on_event(case_started(1, "b"));
    sink.clear_live();
    write_all(fd, "cp-pool: error: disk full\n", "the pty");
    sink.on_event(finished(0, "a", CaseOutcome::pass));
    sink.on_event(finished(1, "b", CaseOutcome::pass));
  }));
  EXPECT_THAT(screen.lines, ElementsAre(HasSubstr("2 cases"), "cp-pool: error: disk full", ""));
  EXPECT_THAT(screen.last_frame(), HasSubstr("2/2"));
}

// --- Which cases get a line ------------------------------------------------------------------------------------------

std::string with_level(StatusLevel level) {
  return captured({.status_level = level}, small_run());
}

TEST(StatusLevel, SaysWhichCasesGetALine) {
  const std::string pass = "pass      1/3";
  const std::string fail = "rerun: cp-pool run";
  const std::string skip = "skip      3/3";
  EXPECT_THAT(with_level(StatusLevel::all), AllOf(HasSubstr(pass), HasSubstr(fail), HasSubstr(skip)));
  EXPECT_THAT(with_level(StatusLevel::skip), AllOf(Not(HasSubstr(pass)), HasSubstr(fail), HasSubstr(skip)));
  EXPECT_THAT(with_level(StatusLevel::fail), AllOf(Not(HasSubstr(pass)), HasSubstr(fail), Not(HasSubstr(skip))));
  EXPECT_THAT(with_level(StatusLevel::none), AllOf(Not(HasSubstr(pass)), Not(HasSubstr(fail)), Not(HasSubstr(skip)),
                                                   HasSubstr("1 failed:\n  fail     b: dq is wrong on rank 1\n")));
}

TEST(ShowOutput, SaysWhoseStderrIsShown) {
  CaseFinished pass = finished(0, "a", CaseOutcome::pass);
  pass.stderr_tails = {{.rank = 0, .text = "of a pass\n", .fenced = true}};
  const auto shown = [&](ShowOutput when) { return captured({.show_output = when}, {pass, failed_case(1, "b")}); };
  EXPECT_THAT(shown(ShowOutput::failed), AllOf(HasSubstr("hello from rank 0"), Not(HasSubstr("of a pass"))));
  EXPECT_THAT(shown(ShowOutput::never), AllOf(Not(HasSubstr("hello from rank 0")), Not(HasSubstr("of a pass"))));
  EXPECT_THAT(shown(ShowOutput::always), AllOf(HasSubstr("hello from rank 0"), HasSubstr("      | of a pass\n")));
}

// --- Detection -------------------------------------------------------------------------------------------------------

TEST(DetectStyle, AFileGetsPlainLines) {
  const TemporaryFolder folder;
  const JsonlSink file{folder / "f"};
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
}  // namespace cp_pool::test
