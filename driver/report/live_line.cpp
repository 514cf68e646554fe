#include "driver/report/live_line.h"

#include <algorithm>
#include <cmath>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/core/ledger.h"
#include "driver/core/mapped.h"
#include "driver/report/case_text.h"
#include "driver/report/output_file.h"
#include "driver/report/terminal_sink.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

constexpr std::size_t kBarColumns = 20;
constexpr std::size_t kLeastBarColumns = 5;
constexpr std::size_t kLeastNameColumns = 20;
constexpr std::size_t kAgeColumns = 7;

std::string counts_text(const LiveState& state, std::size_t done) {
  std::string text = state.expanded > 0 ? fmt::format("{}/{}", done, state.expanded) : count_of(done, "case") + ':';
  if (const std::string counts = outcome_counts_text(state.counts, " "); !counts.empty()) text += ' ' + counts;
  return state.expected > 0 ? text + fmt::format(" {} xfail", state.expected) : text;
}

// Returns the rate and the ETA: " 4.0/s" and " ETA 0:10".
std::pair<std::string, std::string> speed(const LiveState& state, std::size_t done) {
  if (state.stopping) return {"", " stopping"};
  if (done == 0 || state.elapsed_s <= 0) return {};
  const double rate = static_cast<double>(done) / state.elapsed_s;
  const double left_s =
      state.left_s.value_or(static_cast<double>(state.expanded - std::min(state.expanded, done)) / rate);
  return {fmt::format(" {:.1f}/s", rate), done < state.expanded ? fmt::format(" ETA {}", format_clock(left_s)) : ""};
}

constexpr std::string_view kClearToEnd = "\x1b[K";  // of the line
constexpr std::string_view kClearBelow = "\x1b[J";
constexpr std::string_view kNoWrap = "\x1b[?7l";  // clips a line that is too wide instead of wrapping it
constexpr std::string_view kWrap = "\x1b[?7h";

// Asked for each frame, so that no signal of a change is needed.
winsize size_of(int fd) {
  constexpr winsize kUsual{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0 ? size : kUsual;
}

}  // namespace

std::size_t cases_done(const LiveState& state) {
  return total_of(state.counts) + state.expected - state.counts.at(static_cast<std::size_t>(CaseOutcome::not_run));
}

std::string live_line(const LiveState& state, std::size_t columns) {
  const std::size_t done = cases_done(state);
  const auto [rate, eta] = speed(state, done);
  const std::string counts = counts_text(state, done);
  const auto with = [&](const std::string& more) {
    return more.empty() ? counts : fmt::format("{} |{}", counts, more);
  };
  const std::string text = with(rate + eta);
  constexpr std::size_t kBrackets = 3;  // the brackets and a space
  const std::size_t wanted = width_of(text);
  if (state.expanded > 0 && wanted + kBrackets + kLeastBarColumns <= columns) {
    const std::size_t length = std::min(kBarColumns, columns - wanted - kBrackets);
    return fmt::format("[{:<{}}] {}", std::string(length * done / state.expanded, '='), length, text);
  }
  return clip(wanted > columns ? with(eta) : text, columns);
}

// Wider code points (CJK) do not occur in case IDs; the terminal clips them.
std::string live_item(const LiveItem& item, std::size_t columns) {
  const std::string age = fmt::format("{:>{}} ", format_clock(std::floor(item.seconds)), kAgeColumns);
  const std::string phase = item.phase.empty() ? "" : fmt::format(" ({})", item.phase);
  const std::size_t room = columns - std::min(columns, width_of(age) + width_of(phase));
  return clip(age + cut_middle(item.name, std::max(room, kLeastNameColumns)) + phase, columns);
}

std::vector<std::string> live_lines(const LiveState& state, const std::vector<LiveItem>& items, std::size_t columns,
                                    std::size_t rows) {
  std::vector<std::string> lines;
  const std::size_t room = rows > 0 ? rows - 1 : 0;
  const bool all_fit = items.size() <= room;
  const std::size_t shown = all_fit ? items.size() : room - std::min<std::size_t>(room, 1);
  lines.reserve(shown + 2);
  for (std::size_t i = 0; i < shown; ++i) lines.push_back(live_item(items[i], columns));
  if (!all_fit && room > 0) {
    lines.push_back(clip(fmt::format("{:>{}} and {} more", "", kAgeColumns, items.size() - shown), columns));
  }
  lines.push_back(live_line(state, columns));
  return lines;
}

void LiveLines::take(const Event& event) {
  std::visit(
      [this](const auto& e) {
        if constexpr (requires { this->on(e); }) this->on(e);
      },
      event);
}

void LiveLines::on(const RunStarted& event) {
  state_.expanded = event.cases;
  search_ = event.seed.has_value();
  unknown_ = event.cases;
  for (std::size_t i = 0; i < std::min(event.ids.size(), event.earlier_ms.size()); ++i) {
    const std::optional<double>& earlier = event.earlier_ms[i];
    if (!earlier) continue;
    earlier_ms_[event.ids[i]] = *earlier;
    const std::size_t runs = event.cases / event.ids.size();  // --repeat
    earlier_all_ms_ += static_cast<double>(runs) * *earlier;
    unknown_ -= std::min(unknown_, runs);
  }
}

void LiveLines::on(const PoolSpawned& event) {
  starting_[to_string(event.pool)] = {{.name = pool_name(event.pool) + " starts"}, style_.now()};
}

void LiveLines::on(const CaseStarted& event) {
  const auto now = style_.now();
  if (first_case_ == Clock::time_point{}) first_case_ = now;
  running_[event.index] = {{.name = event.id}, now};
}

void LiveLines::on(const CaseProgress& event) {
  const auto running = running_.find(event.index);
  if (running != running_.end()) running->second.item.phase = event.phase;
}

void LiveLines::on(const CaseFinished& event) {
  ++(failed_as_expected(event) ? state_.expected : state_.counts.at(static_cast<std::size_t>(event.outcome)));
  running_.erase(event.index);
  if (const auto earlier = earlier_ms_.find(event.id); earlier != earlier_ms_.end()) {
    earlier_done_ms_ += earlier->second;
  } else {
    unknown_ -= std::min<std::size_t>(unknown_, 1);
  }
}

void LiveLines::print(std::string_view lines) {
  std::string out;
  if (!shown_.empty()) out += to_first_line() + std::string{kClearBelow};
  shown_.clear();
  out += lines;
  if (is_live()) out += frame();
  write_all(fd_, out, "stdout");
}

// Returns the running cases and then the starting pools, the oldest first.
std::vector<LiveItem> LiveLines::items() const {
  const auto now = style_.now();
  std::vector<LiveItem> items;
  const auto add = [&](const auto& running) {
    std::vector<const Running*> sorted = mapped(running, [](const auto& entry) { return &entry.second; });
    std::ranges::stable_sort(sorted, {}, &Running::since);
    for (const Running* each : sorted) {
      items.push_back(each->item);
      items.back().seconds = std::chrono::duration<double>(now - each->since).count();
    }
  };
  add(running_);
  add(starting_);
  return items;
}

// Estimates the remaining time from earlier runs, scaled by how long the finished cases have taken in this run.
void LiveLines::note_time() {
  if (first_case_ == Clock::time_point{}) return;
  state_.elapsed_s = std::chrono::duration<double>(style_.now() - first_case_).count();
  const std::size_t done = cases_done(state_);
  if (done == 0 || earlier_done_ms_ <= 0) return;
  const double left_ms = std::max(0.0, earlier_all_ms_ - earlier_done_ms_);
  const double a_case = state_.elapsed_s / static_cast<double>(done);
  state_.left_s = left_ms * state_.elapsed_s / earlier_done_ms_ + static_cast<double>(unknown_) * a_case;
}

// Nothing is live for a stream, which may come from this very terminal.
bool LiveLines::is_live() const {
  return style_.live && (state_.expanded > 0 || search_);
}

// Returns the sequence that moves from the end of the last live line to the beginning of the first.
std::string LiveLines::to_first_line() const {
  const winsize size = size_of(fd_);
  std::size_t rows = 0;
  for (const std::size_t width : shown_) {
    rows += style_.reflows && width > size.ws_col ? (width + size.ws_col - 1) / size.ws_col : 1;
  }
  const std::size_t up = std::min<std::size_t>(rows, size.ws_row) - 1;
  return up == 0 ? "\r" : fmt::format("\r\x1b[{}A", up);
}

// Each line is written over the old one, so that nothing flickers.
std::string LiveLines::frame() {
  note_time();
  const winsize size = size_of(fd_);
  // The last column stays free, because writing to it makes some terminals wrap.
  const std::vector<std::string> lines = live_lines(state_, items(), size.ws_col - 1U, size.ws_row - 1U);
  std::string out = shown_.empty() ? "\r" : to_first_line();
  // A line that the terminal has wrapped stays joined to the next one until it is cleared, even if it is overwritten.
  // In a wider terminal both would stand in one row.
  if (!shown_.empty() && size.ws_col != columns_) out += kClearBelow;
  columns_ = size.ws_col;
  out += kNoWrap;
  shown_.clear();
  for (const std::string& line : lines) {
    out += fmt::format("{}{}{}", shown_.empty() ? "" : "\n", line, kClearToEnd);
    shown_.push_back(width_of(line));
  }
  out += fmt::format("{}{}", kClearBelow, kWrap);
  last_frame_ = style_.now();
  return out;
}

void LiveLines::draw() {
  if (!is_live()) return;
  if (!shown_.empty() && style_.now() - last_frame_ < style_.frame_interval) return;  // the next tick draws the frame
  write_all(fd_, frame(), "stdout");
}

void LiveLines::clear() noexcept {
  if (shown_.empty()) return;
  // Errors are ignored: a terminal that is gone has no live lines, and the next event reports the error.
  const std::string out = to_first_line() + std::string{kClearBelow};
  [[maybe_unused]] const ssize_t written = ::write(fd_, out.data(), out.size());
  shown_.clear();
}

}  // namespace cp_pool
