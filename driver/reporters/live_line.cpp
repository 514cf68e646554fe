#include "driver/reporters/live_line.h"

#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "driver/reporters/text_format.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

constexpr std::size_t kBarColumns = 20;

std::string bar(std::size_t done, std::size_t all) {
  const std::size_t filled = all == 0 ? kBarColumns : kBarColumns * done / all;
  return fmt::format("[{}{}]", std::string(filled, '='), std::string(kBarColumns - filled, ' '));
}

}  // namespace

std::string live_line(const LiveState& state, std::size_t columns) {
  const std::size_t done = std::accumulate(state.counts.begin(), state.counts.end(), std::size_t{0});
  std::string line = fmt::format("{} {}/{}", bar(done, state.expanded), done, state.expanded);
  for (std::size_t i = 0; i < kCaseOutcomes; ++i) {
    if (state.counts.at(i) == 0) continue;
    line += fmt::format(" {} {}", state.counts.at(i), to_string(static_cast<CaseOutcome>(i)));
  }
  if (done > 0 && state.elapsed_s > 0) {
    const double rate = static_cast<double>(done) / state.elapsed_s;
    line += fmt::format(" | {:.1f}/s", rate);
    if (done < state.expanded) {
      line += fmt::format(" ETA {}", format_clock(static_cast<double>(state.expanded - done) / rate));
    }
  }
  if (!state.running.empty()) {
    line += " | ";
    if (state.running_s >= 1) line += format_clock(std::floor(state.running_s)) + ' ';
    line += protocol::clean_text(state.running);
  }
  // A wider code point (CJK) is beyond what case IDs hold; the terminal's own clipping is the guard there.
  return clip(line, columns);
}

}  // namespace cp_pool
