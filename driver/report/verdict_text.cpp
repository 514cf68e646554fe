#include "driver/report/verdict_text.h"

#include <fmt/format.h>

#include "driver/report/text_format.h"

namespace cp_pool {

std::string verdict_line(const Verdict& verdict) {
  std::string out{name_of(verdict.kind)};
  if (verdict.n > 0) out += fmt::format(" ({} of {})", verdict.k, verdict.n);
  if (verdict.culprit) out += fmt::format(", by {}", *verdict.culprit);
  return out;
}

std::string verdict_text(const Verdict& verdict) {
  std::string out = fmt::format("verdict: {}\n", verdict_line(verdict));
  for (const std::string& sentence : verdict.evidence) out += fmt::format("  {}\n", sentence);
  return out;
}

std::string replay_text(const CaseReplayed& event) {
  std::string where = "alone";
  if (event.before > 0) where = fmt::format("after {}, from {} on", count_of(event.before, "case"), event.first);
  if (event.before == 1) where = fmt::format("after {}", event.first);
  return fmt::format("replay {}: {} {}: {}", event.replay, to_string(event.outcome), where, event.id);
}

}  // namespace cp_pool
