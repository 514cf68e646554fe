#include "driver/report/case_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/core/figures.h"
#include "driver/core/ledger.h"
#include "driver/core/mapped.h"
#include "driver/core/stack_lines.h"
#include "driver/report/text_format.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

constexpr std::size_t kMostListed = 20;

// Returns the error text of a rank without a part that repeats the reason or a failed check.
std::string rank_details(const protocol::RankResult& rank, const CaseFinished& event) {
  const std::string_view reason = event.reason;
  const std::string text = readable_stack(rank.error);
  const std::string name = fmt::format("rank {}: ", rank.rank);
  const auto without_name = [&](std::string_view line) {
    return line.starts_with(name) ? line.substr(name.size()) : line;
  };
  std::string_view rest = without_name(text);
  while (rest.ends_with('\n')) rest.remove_suffix(1);
  const std::size_t end = rest.find('\n');
  if (rest.substr(0, end) == without_name(reason))
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  const auto says_so = [&](const Check& check) {
    return !check.ok && check.rank == rank.rank && rest == fmt::format("{}: {}", check.tensor, check.message);
  };
  if (rest.empty() || std::ranges::any_of(event.checks, says_so)) return "";
  if (rest.find('\n') == std::string_view::npos) return fmt::format("{}{}\n", name, rest);
  return fmt::format("rank {} error:\n{}", rank.rank, prefix_lines(rest, "  "));
}

// Keeps the first of consecutive lines that differ only in digits, and counts the others.
std::string fold_repeats(std::string_view text) {
  const std::vector<std::string_view> lines = protocol::lines_of(text);
  const auto form = [](std::string line) {
    std::erase_if(line, [](char c) { return c >= '0' && c <= '9'; });
    return line;
  };
  const auto alike = [&](std::string_view before, std::string_view line) {
    const std::string own = form(std::string{line});
    return !own.empty() && own == form(std::string{before});
  };
  std::string out;
  for (const auto& [begin, end] : stretches(lines, alike)) {
    const bool folds = end - begin > 2;
    for (std::size_t i = begin; i < (folds ? begin + 1 : end); ++i) out.append(lines[i]).append(1, '\n');
    if (folds) out += fmt::format("[and {} more lines that differ in digits alone]\n", end - begin - 1);
  }
  return out;
}

}  // namespace

std::string outcome_counts_text(const OutcomeCounts& counts, std::string_view between) {
  std::vector<std::string> texts;
  for (const auto& [outcome, name] : kNames<CaseOutcome>) {
    const std::size_t count = counts.at(static_cast<std::size_t>(outcome));
    if (count > 0) texts.push_back(fmt::format("{} {}", count, name));
  }
  return fmt::format("{}", fmt::join(texts, between));
}

std::string case_name(const CaseFinished& event) {
  return event.runs > 1 ? fmt::format("{} (run {} of {})", event.id, event.run, event.runs) : event.id;
}

std::string pool_name(const PoolId& pool) {
  return "pool " + to_string(pool);
}

std::string suite_of(const CaseFinished& event) {
  std::string suite = event.payload->suite();
  return suite.empty() ? "cases" : suite;
}

std::string first_run_text(const CaseFinished& event) {
  if (!event.first_run) return "";
  const std::string reason = shortened(event.first_run->reason);
  const std::string_view first_line = protocol::first_line(reason);
  return fmt::format("first run: {}{}{}", to_string(event.first_run->outcome), first_line.empty() ? "" : ": ",
                     first_line);
}

std::string earlier_runs_text(const CaseFinished& event) {
  std::vector<std::string> counts;
  const auto alike = [](const EarlierRun& a, const EarlierRun& b) { return a.outcome == b.outcome; };
  for (const auto& [begin, end] : stretches(event.earlier, alike)) {
    counts.push_back(fmt::format("{} {}", end - begin, to_string(event.earlier[begin].outcome)));
  }
  return counts.empty() ? "" : fmt::format("earlier runs: {} (the oldest first)\n", fmt::join(counts, ", "));
}

void CaseRuns::add(const CaseFinished& event) {
  if (event.runs > 1 && is_of_the_case(event.outcome)) {
    ++counts_[event.id].at(static_cast<std::size_t>(event.outcome));
  }
}

std::string CaseRuns::difference(const std::string& id) const {
  const auto counts = counts_.find(id);
  if (counts == counts_.end()) return "";
  std::vector<std::string> failures;
  std::size_t kinds = 0;
  for (const auto& [outcome, name] : kNames<CaseOutcome>) {
    const std::size_t count = counts->second.at(static_cast<std::size_t>(outcome));
    if (count == 0) continue;
    ++kinds;
    if (outcome != CaseOutcome::pass) failures.push_back(fmt::format("{} in {}", name, count));
  }
  return kinds < 2 ? "" : fmt::format("{} of {}", fmt::join(failures, ", "), total_of(counts->second));
}

std::string CaseRuns::text() const {
  std::vector<std::string> lines;
  for (const auto& [id, counts] : counts_) {
    if (const std::string differs = difference(id); !differs.empty())
      lines.push_back(fmt::format("{}: {}", differs, id));
  }
  if (lines.empty()) return "";
  return fmt::format("{} of {} repeated: runs that ended differently\n{}", lines.size(), counts_.size(),
                     first_lines(lines, kMostListed));
}

std::string shortened(std::string_view foreign) {
  constexpr std::size_t kMostBytes = 1024;
  return protocol::cut_text(foreign, kMostBytes);
}

std::string in_line(std::string_view foreign) {
  return on_one_line(shortened(foreign));
}

std::string check_text(const Check& check) {
  const std::string head = fmt::format("rank {}: {}: ", check.rank, check.tensor);
  const std::string& message = check.message;
  if (!check.measured) return head + (message.empty() ? "" : message + "; ") + "no error and bound given";
  // The message says all there is to say if nothing was measured: a result of the wrong shape, a repetition that
  // differs.
  if (!message.empty() && std::isnan(check.error) && std::isnan(check.bound)) return head + message;
  // A check may fail although its error is within the bound: a NaN elsewhere, padding that is not zero.
  const char* relation = check.error > check.bound ? ">" : "against";
  return head + fmt::format("{}error {} {} bound {} at [{}] (baseline {}, max_abs {}, rms {})",
                            message.empty() ? "" : message + "; ", format_figure(check.error), relation,
                            format_figure(check.bound), fmt::join(check.worst_index, ", "),
                            format_figure(check.baseline), format_figure(check.max_abs), format_figure(check.rms));
}

std::string bound_factor_text(const CaseFinished& event) {
  return event.bound_factor ? fmt::format("bounds x {}", *event.bound_factor) : "";
}

const std::string& cause_or_reason(const CaseFinished& event) {
  return event.diagnosis && names_a_cause(*event.diagnosis) ? event.diagnosis->cause : event.reason;
}

std::string failure_details(const CaseFinished& event, DrawMask draw) {
  const std::string& reason = event.reason;
  std::string checks;
  bool check_has_reason = false;
  for (const Check& check : event.checks) {
    if (check.ok) continue;
    const std::string line = check_text(check);
    check_has_reason |= !reason.empty() && line.starts_with(reason);
    checks += line + '\n';
  }
  std::string out = check_has_reason ? "" : prefix_lines(reason, "");
  if (event.first_run) out += prefix_lines(first_run_text(event), "");
  if (!event.implementation.empty()) out += fmt::format("implementation: {}\n", event.implementation);
  out += checks;
  if (event.bound_factor && !event.checks.empty()) out += fmt::format("({})\n", bound_factor_text(event));
  if (event.diagnosis) {
    const std::string why = diagnosis_text(*event.diagnosis, draw);
    out = names_a_cause(*event.diagnosis) ? why + out : out + why;
  }
  for (const protocol::RankResult& rank : event.ranks) {
    if (!rank.ok) out += rank_details(rank, event);
  }
  return out;
}

std::string ending_text(const CaseFinished& event) {
  std::string text = fmt::format(" after {}", format_duration(event.duration_ms));
  if (event.pool) text += " on " + pool_name(*event.pool);
  return event.attempts > 1 ? text + fmt::format(", attempt {}", event.attempts) : text;
}

std::string stderr_details(const CaseFinished& event) {
  std::string out;
  for (const StderrTail& tail : event.stderr_tails) {
    if (tail.text.empty()) continue;
    const std::string text = fold_repeats(readable_stack(tail.text));
    out += fmt::format("{} stderr{}:\n{}", tail.of.empty() ? fmt::format("rank {}", tail.rank) : tail.of,
                       tail.fenced ? "" : " (unfenced)", prefix_lines(text, "  | "));
  }
  return out;
}

std::string_view outcome_word(const CaseFinished& event) {
  if (failed_as_expected(event)) return "xfail";
  return passed_unexpectedly(event) ? "xpass" : to_string(event.outcome);
}

Urgency urgency_of(const CaseFinished& event) {
  if (is_failure(event)) return Urgency::bad;
  if (failed_as_expected(event) || passed_unexpectedly(event)) return Urgency::other;
  return urgency_of(event.outcome);
}

void CaseGroup::add(const CaseFinished& event) {
  ++cases;
  ++counts.at(static_cast<std::size_t>(event.outcome));
  ++by_urgency.at(static_cast<std::size_t>(urgency_of(event)));
  if (shown == nullptr || urgency_of(event) > urgency_of(*shown)) shown = &event;
}

std::string expected_text(const CaseFinished& event) {
  if (!is_to_fail(event.expected)) return "";
  const bool passed = passed_unexpectedly(event);
  return fmt::format("{}: {}", passed ? "passed, and was expected to fail" : "expected to fail",
                     event.expected->reason);
}

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

}  // namespace cp_pool
