#include "driver/reporters/failure_text.h"

#include <fmt/format.h>

#include "driver/reporters/stack_lines.h"
#include "driver/reporters/text_format.h"

namespace cp_pool {

std::string shortened(std::string_view foreign) {
  constexpr std::size_t kMostBytes = 1024;
  return protocol::cut_text(protocol::clean_text(foreign), kMostBytes);
}

std::string check_text(const protocol::TensorCheck& check, protocol::Ansi ansi) {
  const std::string head = fmt::format("rank {}: {}: ", check.rank, protocol::clean_text(check.tensor, ansi));
  const std::string message = protocol::clean_text(check.message, ansi);
  if (!check.measured) return head + (message.empty() ? "" : message + "; ") + "no error and bound given";
  // A check may fail with its error within the bound: a NaN elsewhere, padding that is not zero.
  const char* relation = check.error > check.bound ? ">" : "against";
  return head + fmt::format("{}error {} {} bound {} at {} (baseline {}, max_abs {}, rms {})",
                            message.empty() ? "" : message + "; ", format_figure(check.error), relation,
                            format_figure(check.bound), format_index(check.worst_index), format_figure(check.baseline),
                            format_figure(check.max_abs), format_figure(check.rms));
}

std::string failure_details(const CaseFinished& event, protocol::Ansi ansi) {
  std::string out = prefix_lines(protocol::clean_text(event.reason, ansi), "");
  for (const protocol::TensorCheck& check : event.checks) {
    if (!check.ok) out += check_text(check, ansi) + '\n';
  }
  for (const protocol::RankResult& rank : event.ranks) {
    if (rank.ok || rank.error.empty()) continue;
    out += fmt::format("rank {} error:\n{}", rank.rank, prefix_lines(protocol::clean_text(rank.error, ansi), "  "));
  }
  return out;
}

std::string stderr_details(const CaseFinished& event, protocol::Ansi ansi) {
  std::string out;
  for (const StderrTail& tail : event.stderr_tails) {
    if (tail.text.empty()) continue;
    out += fmt::format("rank {} stderr{}:\n{}", tail.rank, tail.fenced ? "" : " (unfenced)",
                       prefix_lines(protocol::clean_text(readable_stack(tail.text), ansi), "  | "));
  }
  return out;
}

}  // namespace cp_pool
