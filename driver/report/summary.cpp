#include "driver/report/summary.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/core/ledger.h"
#include "driver/core/mapped.h"
#include "driver/core/run_memory.h"
#include "driver/report/text_format.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

constexpr std::size_t kMostFailures = 20;  // failures that are listed
// For the reason of each. It is cut in its middle, as its point may be at its end: "..: Too many open files".
constexpr std::size_t kReasonColumns = 100;

}  // namespace

std::string ledger_line(const RunFinished& run) {
  std::string terms;
  for (const auto& [outcome, name] : kNames<CaseOutcome>) {
    const std::size_t count = run.counts.at(static_cast<std::size_t>(outcome));
    const bool always = outcome == CaseOutcome::pass || outcome == CaseOutcome::fail;
    if (count == 0 && !always) continue;
    terms += fmt::format("{}{} {}", terms.empty() ? "" : " + ", count, name);
    if (outcome == CaseOutcome::pass && run.flaky > 0) terms += fmt::format(" ({} flaky)", run.flaky);
  }
  const bool exact = run.ledger_exact && total_of(run.counts) == run.expanded;
  std::vector<std::string> expected;
  if (run.expected_failures > 0) expected.push_back(fmt::format("{} xfail", run.expected_failures));
  if (run.unexpected_passes > 0) expected.push_back(fmt::format("{} xpass", run.unexpected_passes));
  if (!expected.empty()) terms += fmt::format(" ({})", fmt::join(expected, ", "));
  return fmt::format("{} expanded {} {}, {}{}{}", run.expanded, exact ? "=" : "!=", terms,
                     format_duration(run.duration_ms), exact ? "" : " (internal error: the ledger does not add up)",
                     run.incomplete.empty() ? "" : fmt::format(" (incomplete: {})", fmt::join(run.incomplete, "; ")));
}

// Returns the lines of the failures of one kind, of which at most `most` are listed.
std::string Summary::kind_text(const std::vector<Failed>& kind, std::size_t most) {
  const Failed& first = kind.front();
  const std::string head = fmt::format("  {:<7}  ", first.word);
  const std::string reason = first.reason.empty() ? "" : ": " + first.reason;
  if (kind.size() == 1) return fmt::format("{}{}{}\n", head, first.name, reason);
  const bool equal = std::ranges::all_of(kind, [&](const Failed& one) { return one.reason == first.reason; });
  return fmt::format("{}{}{}{}\n", head, count_of(kind.size(), "case"), equal ? "" : ", the first", reason) +
         first_lines(mapped(kind, &Failed::name), most, std::string(head.size(), ' '));
}

std::string tries_text(const CaseFinished& event, const std::vector<CaseOutcome>& tries) {
  if (tries.empty()) return event.flaky ? "flaky" : "";
  std::string text = event.flaky ? "flaky: " : "";
  for (const CaseOutcome tried : tries) text += fmt::format("{}, ", to_string(tried));
  return text + fmt::format("then {} on try {}", to_string(event.outcome), tries.size() + 1);
}

Summary::Summary(const RunReport& run) {
  for (const ReportedCase& c : run.cases) {
    for (const ReportedTry& each : c.tries) {
      if (&each != &c.tries.back()) tries_[each.end.index].push_back(each.end.outcome);
    }
    add(c.end());
  }
  for (const auto& [index, verdict] : run.verdicts) add(verdict);
}

void Summary::add(const CaseFinished& event) {
  runs_.add(event);
  add_tries(event);
  if (event.first_run) {
    const std::string first = first_run_text(event);
    reruns_.push_back(fmt::format("{}  {}, {}", to_string(event.outcome), case_name(event), first));
  }
  if (event.other_bits) repeated_.insert(event.id);
  if (event.other_bits && !event.other_bits->empty()) {
    (promises_bits(event) ? differing_ : differing_unpromised_).insert(event.id);
  }
  if (is_failure(event) && !is_try(event.search)) add_failure(event);
  if (failed_as_expected(event)) ++expected_failures_[shortened(event.expected->reason)];
  if (passed_unexpectedly(event) && !event.expected->strict) {
    passed_unexpectedly_.push_back(fmt::format("{}: {}", case_name(event), shortened(event.expected->reason)));
  }
  if (is_unverified_by_figures(event)) ++unverified_;
  if (is_checked_by_itself(event)) ++checked_by_itself_;
  if (!event.backend_note.empty()) ++backend_notes_[event.backend_note];
  if (event.shared_gpus > 0) ++sharing_;
  if (const std::optional<LargestShare> share = uneven_share(event)) {
    if (++uneven_ == 1 || share->of_mean > most_uneven_.of_mean) {
      most_uneven_ = *share;
      most_uneven_id_ = event.id;
    }
  }
  if (event.bound_factor) ++bound_factors_[bound_factor_text(event)];
  if (is_of_the_case(event.outcome)) {
    durations_ms_.add(event.duration_ms, first_uses_.add(event));
  } else {
    ++reasons_[{event.outcome, shortened(event.reason)}];
  }
}

// Says whether repeated cases gave the same bits. A case whose bits were promised and differ is also a failure.
std::string Summary::repeats_text() const {
  if (repeated_.empty()) return "";
  const auto differ = [&](const std::set<std::string>& ids, std::string_view of) {
    return ids.empty() ? "" : fmt::format("{} of {} repeated: other output bits{}\n", ids.size(), repeated_.size(), of);
  };
  const std::string text =
      differ(differing_, "") + differ(differing_unpromised_, ", of kernels that repeat them only with --deterministic");
  return !text.empty() ? text : fmt::format("{} repeated: every run gave the same output bits\n", repeated_.size());
}

void Summary::add_failure(const CaseFinished& event) {
  const std::size_t kind = kinds_.add(event);
  if (kind == failures_.size()) failures_.emplace_back();
  const std::string reason = passed_unexpectedly(event) ? expected_text(event) : cause_or_reason(event);
  const std::string_view first = protocol::first_line(reason);
  failures_[kind].push_back(
      {.index = event.index,
       .name = case_name(event),
       .word = std::string(outcome_word(event)),
       .reason = cut_middle(first, kReasonColumns) + (first.size() < reason.size() ? " .." : "")});
}

void Summary::add_tries(const CaseFinished& event) {
  const auto tries = tries_.find(event.index);
  if (event.flaky) {
    const auto earlier = tries == tries_.end() ? std::vector<CaseOutcome>{} : tries->second;
    flaky_.push_back(fmt::format("{}: {}", case_name(event), cp_pool::tries_text(event, earlier)));
  } else if (tries != tries_.end() && event.outcome != CaseOutcome::pass) {
    ++in_vain_;
  }
}

std::string Summary::tries_text() const {
  std::string out;
  if (!flaky_.empty()) {
    out += fmt::format("{} flaky: passed on a later try (--retries)\n", flaky_.size()) +
           first_lines(flaky_, kMostFailures);
  }
  if (in_vain_ > 0) out += fmt::format("{} run again (--retries) without a pass\n", count_of(in_vain_, "case"));
  return out;
}

std::string Summary::expectations_text() const {
  std::string out;
  for (const auto& [reason, count] : expected_failures_) {
    out += fmt::format("{} xfail (failed as expected): {}\n", count, reason);
  }
  if (passed_unexpectedly_.empty()) return out;
  return out + fmt::format("{} xpass (passed, and expected to fail):\n", passed_unexpectedly_.size()) +
         first_lines(passed_unexpectedly_, kMostFailures);
}

void Summary::add(const CaseVerdict& event) {
  const std::string run = event.runs > 1 ? fmt::format(" (run {} of {})", event.run, event.runs) : "";
  verdicts_[event.verdict.kind].push_back(fmt::format("  {}: {}{}", verdict_line(event.verdict), event.id, run));
}

std::string Summary::verdicts_text() const {
  if (verdicts_.empty()) return "";
  std::string counts;
  std::string lines;
  std::size_t left = kMostFailures;
  for (const auto& [kind, of_kind] : verdicts_) {
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", of_kind.size(), name_of(kind));
    for (const std::string& line : of_kind) {
      if (kind == VerdictKind::not_triaged || left == 0) break;
      lines += line + '\n';
      --left;
    }
  }
  return fmt::format("verdicts (--triage): {}\n{}", counts, lines);
}

std::string Summary::failures(const std::optional<std::string>& rerun, std::size_t least) const {
  std::vector<std::vector<Failed>> kinds = failures_;
  std::size_t count = 0;
  for (std::vector<Failed>& kind : kinds) {
    std::ranges::stable_sort(kind, {}, &Failed::index);
    count += kind.size();
  }
  if (count < least) return "";
  std::ranges::stable_sort(kinds, {}, [](const std::vector<Failed>& kind) { return kind.front().index; });
  std::string out = fmt::format("{} failed:\n", count);
  const std::size_t shown_kinds = std::min(kinds.size(), kMostFailures);
  std::size_t left_out = 0;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    if (k < shown_kinds) out += kind_text(kinds[k], kMostFailures / shown_kinds);
    if (k >= shown_kinds) left_out += kinds[k].size();
  }
  if (left_out > 0) out += fmt::format("  and {} more of other kinds\n", left_out);
  if (rerun) out += fmt::format("rerun them: {}\n", *rerun);
  return out;
}

std::string Summary::text() const {
  std::string out;
  if (!implementations_.empty()) out += fmt::format("implementation: {}\n", fmt::join(implementations_, "; "));
  if (const std::vector<double>& all = durations_ms_.all; !all.empty()) {
    out += fmt::format("{} ran: p50 {}, p95 {}, max {} a case\n", all.size(), format_duration(durations_ms_.p50()),
                       format_duration(quantile(all, 0.95)), format_duration(quantile(all, 1)));
  }
  out += repeats_text() + runs_.text();
  if (!reruns_.empty()) {
    out += fmt::format("{} rerun, counted by the last run:\n", reruns_.size()) + first_lines(reruns_, kMostFailures);
  }
  out += tries_text() + expectations_text();
  if (unverified_ > 0) {
    out += fmt::format("{} {}: the worker says pass, and gives no check with error and bound of every rank\n",
                       unverified_, kUnverifiedByFigures);
  }
  if (checked_by_itself_ > 0) {
    out += fmt::format("{} {}: the function of a call decides, and no figures\n", checked_by_itself_, kCheckedByItself);
  }
  if (sharing_ > 0) out += fmt::format("{} with ranks that shared a GPU\n", count_of(sharing_, "case"));
  if (uneven_ > 0) {
    out += fmt::format("{} with right results, and ranks that share the work unevenly: {} in {} (cp-pool explain)\n",
                       count_of(uneven_, "case"), most_uneven_.text(), most_uneven_id_);
  }
  for (const auto& [factor, count] : bound_factors_) {
    out += fmt::format("{} judged with {}\n", count_of(count, "case"), factor);
  }
  for (const auto& [note, count] : backend_notes_) {
    out += fmt::format("{} with a remark: {}\n", count_of(count, "case"), note);
  }
  std::vector<std::pair<std::pair<CaseOutcome, std::string>, std::size_t>> groups(reasons_.begin(), reasons_.end());
  std::ranges::stable_sort(groups, {}, [](const auto& group) {
    return std::pair{group.first.first, -static_cast<std::int64_t>(group.second)};
  });
  for (const auto& [group, count] : groups) {
    const auto& [outcome, whole] = group;
    // The detailed reason why a pool could not start was printed when it first occurred.
    const std::string reason = outcome == CaseOutcome::infra ? whole.substr(0, whole.find(": ")) : whole;
    const char* const not_run = outcome == CaseOutcome::infra ? " (not run)" : "";
    out +=
        fmt::format("{} {}{}: {}\n", count, to_string(outcome), not_run, reason.empty() ? "no reason given" : reason);
  }
  return out + verdicts_text();
}

}  // namespace cp_pool
