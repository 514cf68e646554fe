// The lines at the bottom of a terminal with the running cases and the progress of the run.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/core/clock.h"
#include "driver/core/events.h"

namespace cp_pool {

struct TerminalStyle;  // terminal_sink.h

struct LiveState {
  std::size_t expanded = 0;                     // number of cases; 0 if unknown, as in a search
  OutcomeCounts counts{};                       // without failures that were expected
  std::size_t expected = 0;                     // number of these failures
  double elapsed_s = 0;                         // since the first case was sent
  std::optional<double> left_s = std::nullopt;  // remaining time as estimated from earlier runs
  bool stopping = false;                        // no further case is started
};

// A case that runs, or a pool that starts.
struct LiveItem {
  std::string name;
  double seconds = 0;      // its age
  std::string phase = {};  // the phase of a case; empty if unknown
};

// Returns the number of cases that have ended, without those that were never started.
std::size_t cases_done(const LiveState& state);

// Returns a line of at most `columns` columns: a bar and finished/expanded (or the number of cases, if the total is
// unknown), the outcomes that are not zero, rate and ETA. If it does not fit, the bar becomes shorter and disappears,
// then the rate. It has no control characters and no newline.
std::string live_line(const LiveState& state, std::size_t columns);

// Returns "   0:12 quick/causal/p2p/cp2/bshd/fp32 (forward)". A name that does not fit is cut in its middle.
std::string live_item(const LiveItem& item, std::size_t columns);

// Returns a line for each item and then that of the run, at most `rows` in all. If there are more items, it shows the
// first of them and the number of the others.
std::vector<std::string> live_lines(const LiveState& state, const std::vector<LiveItem>& items, std::size_t columns,
                                    std::size_t rows);

// Draws these lines below all that is printed while a run goes on.
class LiveLines {
 public:
  // `fd` is not owned. The style has to outlive the lines.
  LiveLines(int fd, TerminalStyle& style) : fd_{fd}, style_{style} {}

  // Takes the news of the event, and draws nothing.
  void take(const Event& event);
  [[nodiscard]] const LiveState& state() const { return state_; }

  // Prints lines above the live lines, all of it at once, so that no terminal shows a part of it. Throws OutputError.
  void print(std::string_view lines);
  // Draws the live lines anew, unless they were drawn just now. Throws OutputError.
  void draw();
  // Removes the live lines. The next call of print or draw brings them back.
  void clear() noexcept;

 private:
  struct Running {
    LiveItem item;  // without its age
    Clock::time_point since;
  };

  void on(const RunStarted& event);
  void on(const PoolSpawned& event);
  void on(const PoolReady& event) { starting_.erase(to_string(event.pool)); }
  void on(const PoolRetired& event) { starting_.erase(to_string(event.pool)); }
  void on(const CaseStarted& event);
  void on(const CaseProgress& event);
  void on(const CaseTried& event) { running_.erase(event.index); }
  void on(const CaseFinished& event);
  void on(const RunStopping& /*event*/) { state_.stopping = true; }

  [[nodiscard]] std::vector<LiveItem> items() const;
  void note_time();
  [[nodiscard]] bool is_live() const;
  [[nodiscard]] std::string to_first_line() const;
  std::string frame();

  int fd_;
  TerminalStyle& style_;
  LiveState state_;
  bool search_ = false;
  std::map<std::size_t, Running> running_;   // cases, by index
  std::map<std::string, Running> starting_;  // pools, by name
  Clock::time_point first_case_;
  std::map<std::string, double> earlier_ms_;  // how long cases took in an earlier run, by ID
  double earlier_all_ms_ = 0;                 // sum over all cases of this run in `earlier_ms_`
  double earlier_done_ms_ = 0;                // sum over those of them that have finished
  std::size_t unknown_ = 0;                   // number of unfinished cases that `earlier_ms_` does not have
  std::vector<std::size_t> shown_;            // the widths of the live lines; empty if none are shown
  std::size_t columns_ = 0;                   // width of the terminal when they were drawn
  Clock::time_point last_frame_;
};

}  // namespace cp_pool
