// The view of a run for people. On a terminal it shows the running cases live at the bottom; elsewhere (a file, CI) it
// prints a plain line for each case. It shows failures in full as they happen and a summary at the end; the ledger is
// the last line.
#pragma once

#include <array>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "cases/enum_names.h"
#include "driver/core/clock.h"
#include "driver/core/events.h"
#include "driver/core/failure_kind.h"
#include "driver/log/run_report.h"
#include "driver/report/live_line.h"

namespace cp_pool {

// The cases that get a line, or their failure in full, when they have finished.
enum class StatusLevel {
  automatic,  // failures; all cases if nothing is live or checks are shown
  none,
  fail,
  skip,  // failures, and cases that were skipped, cancelled or expected to fail
  all,
};

template <>
inline constexpr std::array<std::pair<StatusLevel, std::string_view>, 5> kNames<StatusLevel>{
    {{StatusLevel::automatic, "auto"},
     {StatusLevel::none, "none"},
     {StatusLevel::fail, "fail"},
     {StatusLevel::skip, "skip"},
     {StatusLevel::all, "all"}}};

// The cases whose stderr tails are shown, if their events have them.
enum class ShowOutput { never, failed, always };
template <>
inline constexpr auto kNames<ShowOutput> = kSpelledNames<ShowOutput::always>;

struct TerminalStyle {
  bool live = false;  // redraw the lines at the bottom in place
  bool color = false;
  bool progress = true;  // if false, nothing is live and only failures get lines
  bool timings = false;  // end with the timings table
  bool checks = false;   // a line and a table of checks for each case, or only for failures without progress
  StatusLevel status_level = StatusLevel::automatic;
  ShowOutput show_output = ShowOutput::failed;
  bool reflows = true;                            // the terminal rewraps visible lines when it becomes narrower
  std::chrono::milliseconds frame_interval{100};  // least time between two frames, unless a line is printed
  Clock::time_point (*now)() = Clock::now;        // the clock of the live lines
};

// Returns a style for the descriptor. Live lines and colour need a terminal whose TERM is not dumb; colour also needs
// that NO_COLOR is unset (https://no-color.org).
TerminalStyle detect_style(int fd, bool progress);

class TerminalSink : public EventSink {
 public:
  // `fd` is not owned.
  TerminalSink(int fd, TerminalStyle style)
      : fd_{fd}, style_{style}, report_{style.timings ? PhaseTimes::of_slowest_rank : PhaseTimes::none} {}
  TerminalSink(const TerminalSink&) = delete;
  TerminalSink& operator=(const TerminalSink&) = delete;
  ~TerminalSink() override { live_.clear(); }

  // Throws OutputError.
  void on_event(const Event& event) override;
  void on_tick() override;  // redraws the live lines; throws ReaderGone

  // Removes the live lines, for output that does not come through this sink (stderr on the same terminal). The next
  // event draws them again.
  void clear_live() noexcept { live_.clear(); }

 private:
  void on(const RunStarted& event);
  void on(const PoolReady& event);
  void on(const PoolRetired& event);
  void on(const CaseTried& event);
  void on(const CaseFinished& event);
  void on(const CaseReplayed& event);
  void on(const CaseVerdict& event);
  void on(const RunPaused& event);
  void on(const auto& /*of the live lines alone*/) { live_.draw(); }
  static void on(const OutputLost&) {}      // printed on stderr as an error
  static void on(const ForkServerTold&) {}  // printed on stderr as a warning
  static void on(const SearchFinished&) {}  // printed at the end
  void on(const SearchFound& event);
  void on(const RunFinished& event);

  [[nodiscard]] bool is_quiet() const;
  [[nodiscard]] std::string case_line(const CaseFinished& event) const;
  [[nodiscard]] std::string failure_block(const CaseFinished& event, std::string_view more = "");
  [[nodiscard]] std::string retired_line(const PoolRetired& event);
  [[nodiscard]] std::string paint(std::string_view text, std::string_view code) const;
  void show_not_run(const CaseFinished& event);
  [[nodiscard]] bool gets_a_line(const CaseFinished& event) const;

  int fd_;
  TerminalStyle style_;
  RunReport report_;  // what is shown at the end
  LiveLines live_{fd_, style_};
  bool trying_ = false;                          // the last case was a try to make a failing case smaller
  std::map<std::string, std::string> replaced_;  // pool key -> why its last generation was given up
  FailureKinds kinds_;
  std::map<std::string, std::string> failed_starts_;  // essence of the reason -> the first pool that did not start
  std::map<std::string, std::string> last_failures_;  // pool -> reason of the last case that failed on it
  std::set<std::string> reasons_shown_;               // why cases were not run, each once
};

}  // namespace cp_pool
