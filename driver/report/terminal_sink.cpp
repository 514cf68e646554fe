#include "driver/report/terminal_sink.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "driver/core/figures.h"
#include "driver/report/case_runs.h"
#include "driver/report/checks_table.h"
#include "driver/report/failure_text.h"
#include "driver/report/output_file.h"
#include "driver/report/search_text.h"
#include "driver/report/text_format.h"
#include "driver/report/verdict_text.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

constexpr std::string_view kRed = "\x1b[1;31m";
constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kYellow = "\x1b[33m";
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kNormal = "\x1b[0m";

constexpr std::string_view kClearToEnd = "\x1b[K";  // of the line
constexpr std::string_view kClearBelow = "\x1b[J";
constexpr std::string_view kNoWrap = "\x1b[?7l";  // clips a line that is too wide instead of wrapping it
constexpr std::string_view kWrap = "\x1b[?7h";

struct Size {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

// Asked for each frame, so that no signal of a change is needed.
Size size_of(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {.columns = size.ws_col, .rows = size.ws_row};
}

// Most terminals and tmux rewrap visible lines when their width changes. xterm, screen and the console do not.
bool wraps_anew(std::string_view term) {
  if (std::getenv("TMUX") != nullptr) return true;
  return std::getenv("XTERM_VERSION") == nullptr && std::getenv("STY") == nullptr && term != "linux";
}

std::string_view color_of(const CaseFinished& event) {
  switch (urgency_of(event)) {
    case Urgency::good:
      return kGreen;
    case Urgency::other:
      return kYellow;
    case Urgency::bad:
      break;
  }
  return kRed;
}

std::string name(const PoolId& pool) {
  return "pool " + to_string(pool);
}

constexpr std::size_t kMostOfDetails = std::size_t{64} << 10U;  // bytes of a worker's details about a failure

// Returns foreign text as a part of a line.
std::string in_line(std::string_view foreign) {
  std::string text = shortened(foreign);
  for (char& c : text) {
    if (c == '\n' || c == '\t') c = ' ';
  }
  return text;
}

}  // namespace

TerminalStyle detect_style(int fd, bool progress) {
  const char* term = std::getenv("TERM");
  const bool capable = ::isatty(fd) == 1 && term != nullptr && std::string_view{term} != "dumb";
  const char* no_color = std::getenv("NO_COLOR");
  const bool color = capable && (no_color == nullptr || *no_color == '\0');
  return {.live = capable && progress, .color = color, .progress = progress, .reflows = capable && wraps_anew(term)};
}

TerminalSink::TerminalSink(int fd, TerminalStyle style) : fd_{fd}, style_{style} {}

TerminalSink::~TerminalSink() {
  clear_live();
}

void TerminalSink::on_event(const Event& event) {
  std::visit([this](const auto& e) { this->on(e); }, event);
}

void TerminalSink::on_tick() {
  expect_reader(fd_, "stdout");
  draw_live();
}

void TerminalSink::on(const RunStarted& event) {
  state_.expanded = event.cases;
  search_ = event.seed.has_value();
  perf_ = PerfTable{event.baseline};
  rerun_failed_ = event.rerun_failed;
  untold_ = event.cases;
  for (std::size_t i = 0; i < std::min(event.ids.size(), event.earlier_ms.size()); ++i) {
    const std::optional<double>& earlier = event.earlier_ms[i];
    if (!earlier) continue;
    earlier_ms_[event.ids[i]] = *earlier;
    const std::size_t runs = event.cases / event.ids.size();  // --repeat
    earlier_all_ms_ += static_cast<double>(runs) * *earlier;
    untold_ -= std::min(untold_, runs);
  }
  if (!style_.progress) {
    summary_.add(event);
    return;
  }
  // The number of cases of a stream is unknown.
  const std::string cases = event.cases > 0 ? count_of(event.cases, "case") + " of " : "cases from ";
  const std::string size = event.size.empty() ? "" : fmt::format(" ({})", event.size);
  const std::string sharing =
      event.shared_gpus == 0
          ? ""
          : fmt::format(" (ranks share {})", count_of(static_cast<std::size_t>(event.shared_gpus), "GPU"));
  print(fmt::format("cp-pool {}: {}{}{} on {}{}{}\n", event.version, cases, event.title, size, event.device, sharing,
                    in_line(implementation_text(event))));
}

void TerminalSink::on(const PoolSpawned& event) {
  starting_[name(event.pool)] = {fmt::format("{} starts", name(event.pool)), style_.now(), ""};
  draw_live();
}

// True while the lines of pools would be a distraction: making cases smaller may cost a pool each.
bool TerminalSink::is_quiet() const {
  return trying_ && style_.live;
}

static std::string ranks_text(const protocol::ReadyEvent& ready) {
  const std::string ranks = count_of(static_cast<std::size_t>(ready.world_size), "rank");
  const int gpus = protocol::shared_gpus(ready);
  return gpus == 0 ? ranks : fmt::format("{} that share {}", ranks, count_of(static_cast<std::size_t>(gpus), "GPU"));
}

void TerminalSink::on(const PoolReady& event) {
  starting_.erase(name(event.pool));
  if (!style_.progress || is_quiet()) return;
  const auto why = replaced_.extract(event.pool.key);
  print(fmt::format("{} ready in {}: {}, {}{}\n", name(event.pool), format_duration(event.spawn_to_ready_ms),
                    event.ready.worker.empty() ? "a worker without a name" : in_line(event.ready.worker),
                    ranks_text(event.ready), why ? fmt::format(" (replaces #{})", why.mapped()) : ""));
}

void TerminalSink::on(const PoolRetired& event) {
  starting_.erase(name(event.pool));
  if (event.reason != RetireReason::finished) {
    replaced_[event.pool.key] = fmt::format("{}: {}", event.pool.generation, to_string(event.reason));
  }
  std::string lines;
  if (event.reason == RetireReason::max_cases && style_.progress) {
    lines += fmt::format("{} replaced after {} (--pool-max-cases)\n", name(event.pool),
                         count_of(static_cast<std::size_t>(event.cases), "case"));
  }
  if (!is_expected(event.reason) && !is_quiet()) lines += retired_line(event);
  for (const Leftover& leftover : event.leftovers) {
    lines += leftover.host.empty()
                 ? fmt::format("{} left process {} behind (state {}, wchan {})\n", name(event.pool), leftover.pid,
                               leftover.state, leftover.wchan)
                 : fmt::format("{} may have left process {} on {} behind (its connection to the driver: {})\n",
                               name(event.pool), leftover.pid, leftover.host, leftover.state);
  }
  if (!lines.empty()) print(lines);
}

std::string TerminalSink::retired_line(const PoolRetired& event) {
  const std::string why = event.detail.empty() ? "" : ": " + in_line(event.detail);
  if (event.reason == RetireReason::start_failed) {
    const std::string first = told_.first_like(event);
    return fmt::format("{} did not start{}\n", name(event.pool), first.empty() ? why : ", as pool " + first);
  }
  return fmt::format("{} given up after {}: {}{}\n", name(event.pool),
                     count_of(static_cast<std::size_t>(event.cases), "case"), to_string(event.reason),
                     told_.says_why(event) ? "" : why);
}

void TerminalSink::on(const CaseStarted& event) {
  const auto now = style_.now();
  if (first_case_ == Clock::time_point{}) first_case_ = now;
  running_[event.index] = {event.id, now, ""};
  draw_live();
}

void TerminalSink::on(const CaseProgress& event) {
  const auto running = running_.find(event.index);
  if (running != running_.end()) running->second.phase = event.phase;
  draw_live();
}

void TerminalSink::on(const RunStopping&) {
  state_.stopping = true;
  draw_live();
}

// A try is shown like a failure, although the case may pass in the end.
void TerminalSink::on(const CaseTried& event) {
  running_.erase(event.index);
  summary_.add(event);
  print(failure_block(event, ", is run again"));
}

void TerminalSink::on(const CaseFinished& event) {
  ++state_.counts.at(static_cast<std::size_t>(event.outcome));
  if (failed_as_expected(event)) ++state_.expected.at(static_cast<std::size_t>(event.outcome));
  running_.erase(event.index);
  summary_.add(event);
  if (style_.timings) timings_.add(event);
  perf_.add(event);
  // While a case is made smaller, its failures are all alike, so only the smallest is shown.
  trying_ = is_shown_by_smallest(event.search);
  if (const auto earlier = earlier_ms_.find(event.id); earlier != earlier_ms_.end()) {
    earlier_done_ms_ += earlier->second;
  } else {
    untold_ -= std::min<std::size_t>(untold_, 1);
  }
  const bool failure = is_failure(event) && !trying_;
  const bool has_output = style_.show_output == ShowOutput::always && !event.stderr_tails.empty();
  if (failure && style_.status_level != StatusLevel::none) {
    print(failure_block(event));
  } else if (event.outcome == CaseOutcome::infra || event.outcome == CaseOutcome::not_run) {
    show_not_run(event);
  } else if (!failure && (gets_a_line(event) || has_output)) {
    print(case_line(event) + (has_output ? prefix_lines(stderr_details(event), "    ") : ""));
  } else {
    draw_live();
  }
  const bool wanted = style_.checks && (style_.progress || is_failure(event));
  if (wanted && !event.checks.empty()) print(prefix_lines(checks_table(event.checks), "    "));
}

bool TerminalSink::gets_a_line(const CaseFinished& event) const {
  switch (style_.status_level) {
    case StatusLevel::automatic:
      return style_.progress && (!style_.live || style_.checks);
    case StatusLevel::none:
    case StatusLevel::fail:
      return false;
    case StatusLevel::skip:
      return event.outcome == CaseOutcome::skip || event.outcome == CaseOutcome::cancelled ||
             failed_as_expected(event) || passed_unexpectedly(event);
    case StatusLevel::all:
      break;
  }
  return true;
}

void TerminalSink::on(const CaseReplayed& event) {
  if (!style_.progress) return;
  print(in_line(replay_text(event)) + '\n');
}

void TerminalSink::on(const CaseVerdict& event) {
  summary_.add(event);
  print(fmt::format("verdict {}\n{}", paint(name_of(event.verdict.kind), kBold) + ": " + event.id,
                    prefix_lines(verdict_text(event.verdict), "    ")));
}

void TerminalSink::on(const RunPaused& event) {
  if (!style_.progress) return;
  print(fmt::format("paused for {}\n", format_duration(event.paused_ms)));
}

void TerminalSink::on(const SearchFound& event) {
  found_.push_back(event);
  print(found_text(event));
}

// The summary of a search stands below that of the run.
void TerminalSink::on(const SearchFinished& event) {
  search_summary_ = search_summary(event, found_);
}

void TerminalSink::on(const RunFinished& event) {
  clear_live();
  style_.live = false;
  // If failures get no lines, even a single failure has to be listed here.
  const std::size_t least = style_.status_level == StatusLevel::none ? 1 : 2;
  std::string lines =
      timings_.text() + perf_.text() + summary_.text() + summary_.failures(rerun_failed_, least) + search_summary_;
  if (event.interrupted) lines += paint("interrupted", kYellow) + ": the run was stopped before its end\n";
  lines += paint(ledger_line(event), event.exit_code == 0 ? kGreen : kRed) + '\n';
  print(lines);
}

std::string TerminalSink::case_line(const CaseFinished& event) const {
  const std::size_t done = cases_done(state_.counts);
  const std::string total = std::to_string(state_.expanded);
  const std::string place = state_.expanded > 0 ? fmt::format("{:>{}}/{}", done, total.size(), total)
                                                : fmt::format("{:>3}", event.number.value_or(done));
  std::string line = fmt::format("{} {} {:>8}  {}", paint(fmt::format("{:<9}", outcome_word(event)), color_of(event)),
                                 place, format_duration(event.duration_ms), case_name(event));
  if (!event.reason.empty()) line += ": " + in_line(event.reason);
  if (const std::string words = words_on_pass(event); !words.empty()) line += fmt::format(" ({})", words);
  if (event.bound_factor) line += fmt::format(" ({})", bound_factor_text(event));
  if (!event.backend_note.empty()) line += fmt::format(" ({})", in_line(event.backend_note));
  if (event.perf) line += ": " + perf_summary(*event.perf);
  if (event.flaky) line += fmt::format(" (flaky: passed on attempt {})", event.attempts);
  if (is_to_fail(event.expected)) line += fmt::format(" ({})", in_line(expected_text(event)));
  if (event.first_run) line += fmt::format(" ({})", in_line(first_run_text(event)));
  return line + '\n';
}

// `more` is appended to the head line.
std::string TerminalSink::failure_block(const CaseFinished& event, std::string_view more) {
  std::string head = fmt::format("{}  {} after {}", paint(outcome_word(event), kRed), paint(case_name(event), kBold),
                                 format_duration(event.duration_ms));
  if (event.pool) head += fmt::format(" on {}", name(*event.pool));
  if (event.attempts > 1) head += fmt::format(", attempt {}", event.attempts);
  head += more;
  const std::string first = told_.first_like(event);
  if (!first.empty() && event.search != SearchStep::smallest) {
    return fmt::format("{}: the same as {}\n", head, first);
  }
  std::string block = head + '\n';
  if (is_to_fail(event.expected)) block += fmt::format("    {}\n", in_line(expected_text(event)));
  const std::string details = failure_details(event, style_.checks ? DrawMask::whole : DrawMask::coarse);
  block += prefix_lines(protocol::cut_text(details, kMostOfDetails), "    ");
  if (style_.show_output != ShowOutput::never) block += prefix_lines(stderr_details(event), "    ");
  block += fmt::format("    rerun: {}\n", event.rerun);
  return block;
}

std::string TerminalSink::paint(std::string_view text, std::string_view code) const {
  if (!style_.color) return std::string{text};
  return fmt::format("{}{}{}", code, text, kNormal);
}

// Written at once, so that no terminal shows a part of it.
void TerminalSink::print(std::string_view lines) {
  std::string out;
  if (!shown_.empty()) out += to_first_line() + std::string{kClearBelow};
  shown_.clear();
  out += lines;
  if (is_live()) out += frame();
  write_all(fd_, out, "stdout");
}

// There are often many such cases, so the summary counts them by reason. Here only the stderr tails of their workers
// are shown, once for each reason, unless the reason contains them.
void TerminalSink::show_not_run(const CaseFinished& event) {
  CaseFinished shown;
  std::ranges::copy_if(event.stderr_tails, std::back_inserter(shown.stderr_tails), [&](const StderrTail& tail) {
    return !event.reason.ends_with(std::string_view{tail.text}.substr(0, tail.text.find_last_not_of('\n') + 1));
  });
  const bool silent = style_.show_output == ShowOutput::never || style_.status_level == StatusLevel::none;
  const std::string said = silent ? "" : stderr_details(shown);
  if (said.empty() || !reasons_shown_.insert(event.reason).second) return draw_live();
  print(fmt::format("{}  {}\n{}", paint(to_string(event.outcome), kRed), in_line(told_.untold_part(event.reason)),
                    prefix_lines(said, "    ")));
}

// Returns the running cases and then the starting pools, the oldest first.
std::vector<LiveItem> TerminalSink::live_items() const {
  const auto now = style_.now();
  std::vector<LiveItem> items;
  const auto add = [&](const auto& running) {
    std::vector<const Running*> sorted;
    sorted.reserve(running.size());
    for (const auto& entry : running) sorted.push_back(&entry.second);
    std::ranges::stable_sort(sorted, {}, &Running::since);
    for (const Running* each : sorted) {
      items.push_back({.name = each->id,
                       .seconds = std::chrono::duration<double>(now - each->since).count(),
                       .phase = each->phase});
    }
  };
  add(running_);
  add(starting_);
  return items;
}

// Estimates the remaining time from earlier runs, scaled by how long the finished cases have taken in this run.
void TerminalSink::note_time() {
  if (first_case_ == Clock::time_point{}) return;
  state_.elapsed_s = std::chrono::duration<double>(style_.now() - first_case_).count();
  const std::size_t done = cases_done(state_.counts);
  if (done == 0 || earlier_done_ms_ <= 0) return;
  const double left_ms = std::max(0.0, earlier_all_ms_ - earlier_done_ms_);
  const double a_case = state_.elapsed_s / static_cast<double>(done);
  state_.left_s = left_ms * state_.elapsed_s / earlier_done_ms_ + static_cast<double>(untold_) * a_case;
}

// Nothing is live for a stream, which may come from this very terminal.
bool TerminalSink::is_live() const {
  return style_.live && (state_.expanded > 0 || search_);
}

// Returns the sequence that moves from the end of the last live line to the beginning of the first.
std::string TerminalSink::to_first_line() const {
  const Size size = size_of(fd_);
  std::size_t rows = 0;
  for (const std::size_t width : shown_) {
    rows += style_.reflows && width > size.columns ? (width + size.columns - 1) / size.columns : 1;
  }
  const std::size_t up = std::min(rows, size.rows) - 1;
  return up == 0 ? "\r" : fmt::format("\r\x1b[{}A", up);
}

// Each line is written over the old one, so that nothing flickers.
std::string TerminalSink::frame() {
  note_time();
  const Size size = size_of(fd_);
  // The last column stays free, because writing to it makes some terminals wrap.
  const std::vector<std::string> lines = live_lines(state_, live_items(), size.columns - 1, size.rows - 1);
  std::string out = shown_.empty() ? "\r" : to_first_line();
  // A line that the terminal has wrapped stays joined to the next one until it is cleared, even if it is overwritten.
  // In a wider terminal both would stand in one row.
  if (!shown_.empty() && size.columns != columns_) out += kClearBelow;
  columns_ = size.columns;
  out += kNoWrap;
  shown_.clear();
  for (const std::string& line : lines) {
    if (!shown_.empty()) out += '\n';
    out += line;
    out += kClearToEnd;
    shown_.push_back(width_of(line));
  }
  out += kClearBelow;
  out += kWrap;
  last_frame_ = style_.now();
  return out;
}

void TerminalSink::draw_live() {
  if (!is_live()) return;
  if (!shown_.empty() && style_.now() - last_frame_ < style_.frame_interval) return;  // the next tick draws the frame
  write_all(fd_, frame(), "stdout");
}

void TerminalSink::clear_live() noexcept {
  if (shown_.empty()) return;
  // Errors are ignored: a terminal that is gone has no live lines, and the next event reports the error.
  const std::string out = to_first_line() + std::string{kClearBelow};
  [[maybe_unused]] const ssize_t written = ::write(fd_, out.data(), out.size());
  shown_.clear();
}

}  // namespace cp_pool
