#include "driver/report/live_line.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "driver/report/text_format.h"

namespace cp_pool {

namespace {

constexpr std::size_t kBarColumns = 20;
constexpr std::size_t kLeastBarColumns = 5;
constexpr std::size_t kLeastNameColumns = 20;
constexpr std::size_t kAgeColumns = 7;

// Returns a bar with `columns` characters between the brackets, and a space after it.
std::string bar(std::size_t done, std::size_t all, std::size_t columns) {
  const std::size_t filled = all == 0 ? columns : columns * done / all;
  return fmt::format("[{}{}] ", std::string(filled, '='), std::string(columns - filled, ' '));
}

std::string counts_text(const LiveState& state, std::size_t done) {
  std::string text = state.expanded > 0 ? fmt::format("{}/{}", done, state.expanded) : count_of(done, "case") + ':';
  for (std::size_t i = 0; i < kCaseOutcomes; ++i) {
    const std::size_t count = state.counts.at(i) - state.expected.at(i);
    if (count > 0) text += fmt::format(" {} {}", count, to_string(static_cast<CaseOutcome>(i)));
  }
  const std::size_t expected = std::accumulate(state.expected.begin(), state.expected.end(), std::size_t{0});
  if (expected > 0) text += fmt::format(" {} xfail", expected);
  return text;
}

struct Speed {
  std::string rate;  // " 4.0/s"
  std::string eta;   // " ETA 0:10"
};

Speed speed(const LiveState& state, std::size_t done) {
  if (state.stopping) return {.rate = "", .eta = " stopping"};
  if (done == 0 || state.elapsed_s <= 0) return {};
  const double rate = static_cast<double>(done) / state.elapsed_s;
  Speed out{.rate = fmt::format(" {:.1f}/s", rate), .eta = ""};
  if (done < state.expanded && state.left_s) {
    out.eta = fmt::format(" ETA {}", format_clock(*state.left_s));
  } else if (done < state.expanded) {
    out.eta = fmt::format(" ETA {}", format_clock(static_cast<double>(state.expanded - done) / rate));
  }
  return out;
}

std::string after_bar(const std::string& text) {
  return text.empty() ? "" : " |" + text;
}

}  // namespace

std::size_t cases_done(const std::array<std::size_t, kCaseOutcomes>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0}) -
         counts.at(static_cast<std::size_t>(CaseOutcome::not_run));
}

std::string live_line(const LiveState& state, std::size_t columns) {
  const std::size_t done = cases_done(state.counts);
  const Speed pace = speed(state, done);
  const std::string counts = counts_text(state, done);
  const std::string text = counts + after_bar(pace.rate + pace.eta);
  constexpr std::size_t kBrackets = 3;  // the brackets and a space
  const std::size_t wanted = width_of(text);
  if (state.expanded > 0 && wanted + kBrackets + kLeastBarColumns <= columns) {
    return bar(done, state.expanded, std::min(kBarColumns, columns - wanted - kBrackets)) + text;
  }
  return clip(wanted > columns ? counts + after_bar(pace.eta) : text, columns);
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

}  // namespace cp_pool
