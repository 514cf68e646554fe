#include "driver/reporters/live_line.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "driver/reporters/text_format.h"

namespace cp_pool {

namespace {

constexpr std::size_t kBarColumns = 20;
constexpr std::size_t kLeastBarColumns = 5;
constexpr std::size_t kLeastIdColumns = 20;

// A bar with `columns` characters between the brackets, and a space after it.
std::string bar(std::size_t done, std::size_t all, std::size_t columns) {
  const std::size_t filled = all == 0 ? columns : columns * done / all;
  return fmt::format("[{}{}] ", std::string(filled, '='), std::string(columns - filled, ' '));
}

std::string counts_text(const LiveState& state, std::size_t done) {
  std::string text = state.expanded > 0 ? fmt::format("{}/{}", done, state.expanded) : count_of(done, "case") + ':';
  for (std::size_t i = 0; i < kCaseOutcomes; ++i) {
    if (state.counts.at(i) == 0) continue;
    text += fmt::format(" {} {}", state.counts.at(i), to_string(static_cast<CaseOutcome>(i)));
  }
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
  if (done < state.expanded) {
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
  std::string middle = counts + after_bar(pace.rate + pace.eta);
  std::string before_id;
  std::string id;
  std::string after_id;
  if (!state.running.empty()) {
    before_id = " | " + (state.running_s >= 1 ? format_clock(std::floor(state.running_s)) + ' ' : "");
    id = state.running;
    if (!state.phase.empty()) after_id = fmt::format(" ({})", state.phase);
  }
  // A wider code point (CJK) is beyond what case IDs hold; the terminal's own clipping is the guard there.
  const auto used = [&] { return width_of(middle + before_id + after_id); };
  constexpr std::size_t kBrackets = 3;  // and a space
  const std::size_t wanted = used() + width_of(id);
  if (state.expanded > 0 && wanted + kBrackets + kLeastBarColumns <= columns) {
    return bar(done, state.expanded, std::min(kBarColumns, columns - wanted - kBrackets)) + middle + before_id + id +
           after_id;
  }
  if (wanted > columns) middle = counts + after_bar(pace.eta);
  const std::size_t room = columns - std::min(columns, used());
  return clip(middle + before_id + cut_middle(id, std::max(room, kLeastIdColumns)) + after_id, columns);
}

}  // namespace cp_pool
