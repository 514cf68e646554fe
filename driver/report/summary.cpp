#include "driver/report/summary.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/core/failure_kind.h"
#include "driver/core/figures.h"
#include "driver/core/ledger.h"
#include "driver/core/mapped.h"
#include "driver/core/run_memory.h"
#include "driver/report/case_text.h"
#include "driver/report/text_format.h"
#include "driver/report/time_tables.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

constexpr std::size_t kMostFailures = 20;  // failures that are listed
// For the reason of each. It is cut in its middle, as its point may be at its end: "..: Too many open files".
constexpr std::size_t kReasonColumns = 100;

std::string durations_text(const RunReport& run) {
  Durations durations_ms;  // of the cases that reached a worker and were not skipped
  FirstUses first_uses;
  for (const CaseFinished& event : ends_of(run)) {
    if (is_of_the_case(event.outcome)) durations_ms.add(event.duration_ms, first_uses.add(event));
  }
  const std::vector<double>& all = durations_ms.all;
  if (all.empty()) return "";
  return fmt::format("{} ran: p50 {}, p95 {}, max {} a case\n", all.size(), format_duration(durations_ms.p50()),
                     format_duration(quantile(all, 0.95)), format_duration(quantile(all, 1)));
}

// Says whether repeated cases gave the same bits and outcomes. A case whose bits were promised and differ is also a
// failure.
std::string repeats_text(const RunReport& run) {
  CaseRuns runs;
  std::set<std::string> repeated;    // IDs
  std::set<std::string> differing;   // IDs of those whose bits differ although they were promised
  std::set<std::string> unpromised;  // IDs of those whose bits differ and were not promised
  for (const CaseFinished& event : ends_of(run)) {
    runs.add(event);
    if (event.other_bits) repeated.insert(event.id);
    if (event.other_bits && !event.other_bits->empty()) {
      (promises_bits(event) ? differing : unpromised).insert(event.id);
    }
  }
  const auto differ = [&](const std::set<std::string>& ids, std::string_view of) {
    return ids.empty() ? "" : fmt::format("{} of {} repeated: other output bits{}\n", ids.size(), repeated.size(), of);
  };
  std::string text =
      differ(differing, "") + differ(unpromised, ", of kernels that repeat them only with --deterministic");
  if (text.empty() && !repeated.empty()) {
    text = fmt::format("{} repeated: every run gave the same output bits\n", repeated.size());
  }
  return text + runs.text();
}

// Says how reruns and further tries ended.
std::string retries_text(const RunReport& run) {
  std::vector<std::string> reruns;
  std::vector<std::string> flaky;
  std::size_t in_vain = 0;  // number of cases whose further tries did not pass either
  for (const ReportedCase& c : run.cases) {
    const CaseFinished& event = c.end();
    if (event.first_run) {
      reruns.push_back(fmt::format("{}  {}, {}", to_string(event.outcome), case_name(event), first_run_text(event)));
    }
    if (event.flaky) flaky.push_back(fmt::format("{}: {}", case_name(event), tries_text(c)));
    if (c.tries.size() > 1 && event.outcome != CaseOutcome::pass) ++in_vain;
  }
  const auto listed = [](const std::vector<std::string>& lines, std::string_view what) {
    return lines.empty() ? "" : fmt::format("{} {}\n", lines.size(), what) + first_lines(lines, kMostFailures);
  };
  std::string out =
      listed(reruns, "rerun, counted by the last run:") + listed(flaky, "flaky: passed on a later try (--retries)");
  if (in_vain > 0) out += fmt::format("{} run again (--retries) without a pass\n", count_of(in_vain, "case"));
  return out;
}

std::string expectations_text(const RunReport& run) {
  std::map<std::string, std::size_t> failures;  // counts by the reason of the expectation
  std::vector<std::string> passes;              // those that are no failures: "ID: why it was expected to fail"
  for (const CaseFinished& event : ends_of(run)) {
    if (failed_as_expected(event)) ++failures[shortened(event.expected->reason)];
    if (passed_unexpectedly(event) && !event.expected->strict) {
      passes.push_back(fmt::format("{}: {}", case_name(event), shortened(event.expected->reason)));
    }
  }
  std::string out;
  for (const auto& [reason, count] : failures) {
    out += fmt::format("{} xfail (failed as expected): {}\n", count, reason);
  }
  if (passes.empty()) return out;
  return out + fmt::format("{} xpass (passed, and expected to fail):\n", passes.size()) +
         first_lines(passes, kMostFailures);
}

std::string remarks_text(const RunReport& run) {
  std::size_t unverified = 0;         // number of passes that no figures verify
  std::size_t checked_by_itself = 0;  // number of passes that figures do not apply to
  std::size_t sharing = 0;            // number of cases whose ranks shared GPUs
  std::size_t uneven = 0;             // number of cases with an uneven_share
  LargestShare most_uneven;           // the largest of these
  std::string most_uneven_id;
  std::map<std::string, std::size_t> bound_factors;  // counts by "bounds x 3"
  std::map<std::string, std::size_t> backend_notes;
  for (const CaseFinished& event : ends_of(run)) {
    unverified += is_unverified_by_figures(event) ? 1 : 0;
    checked_by_itself += is_checked_by_itself(event) ? 1 : 0;
    sharing += event.shared_gpus > 0 ? 1 : 0;
    const std::optional<LargestShare> share = uneven_share(event);
    if (share && (++uneven == 1 || share->of_mean > most_uneven.of_mean)) {
      most_uneven = *share;
      most_uneven_id = event.id;
    }
    if (event.bound_factor) ++bound_factors[bound_factor_text(event)];
    if (!event.backend_note.empty()) ++backend_notes[event.backend_note];
  }
  std::string out;
  if (unverified > 0) {
    out += fmt::format("{} {}: the worker says pass, and gives no check with error and bound of every rank\n",
                       unverified, kUnverifiedByFigures);
  }
  if (checked_by_itself > 0) {
    out += fmt::format("{} {}: the function of a call decides, and no figures\n", checked_by_itself, kCheckedByItself);
  }
  if (sharing > 0) out += fmt::format("{} with ranks that shared a GPU\n", count_of(sharing, "case"));
  if (uneven > 0) {
    out += fmt::format("{} with right results, and ranks that share the work unevenly: {} in {} (cp-pool explain)\n",
                       count_of(uneven, "case"), most_uneven.text(), most_uneven_id);
  }
  for (const auto& [factor, count] : bound_factors) {
    out += fmt::format("{} judged with {}\n", count_of(count, "case"), factor);
  }
  for (const auto& [note, count] : backend_notes) {
    out += fmt::format("{} with a remark: {}\n", count_of(count, "case"), note);
  }
  return out;
}

// Says why cases did not run: counts for skip, infra, cancelled and not_run.
std::string reasons_text(const RunReport& run) {
  std::map<std::pair<CaseOutcome, std::string>, std::size_t> reasons;
  for (const CaseFinished& event : ends_of(run)) {
    if (!is_of_the_case(event.outcome)) ++reasons[{event.outcome, shortened(event.reason)}];
  }
  std::vector<std::pair<std::pair<CaseOutcome, std::string>, std::size_t>> groups(reasons.begin(), reasons.end());
  std::ranges::stable_sort(groups, {}, [](const auto& group) {
    return std::pair{group.first.first, -static_cast<std::int64_t>(group.second)};
  });
  std::string out;
  for (const auto& [group, count] : groups) {
    const auto& [outcome, whole] = group;
    // The detailed reason why a pool could not start was printed when it first occurred.
    const std::string reason = outcome == CaseOutcome::infra ? whole.substr(0, whole.find(": ")) : whole;
    const char* const not_run = outcome == CaseOutcome::infra ? " (not run)" : "";
    out +=
        fmt::format("{} {}{}: {}\n", count, to_string(outcome), not_run, reason.empty() ? "no reason given" : reason);
  }
  return out;
}

std::string verdicts_text(const RunReport& run) {
  std::map<VerdictKind, std::vector<std::string>> verdicts;  // one line for each
  for (const auto& [index, event] : run.verdicts) {
    const std::string of_runs = event.runs > 1 ? fmt::format(" (run {} of {})", event.run, event.runs) : "";
    verdicts[event.verdict.kind].push_back(fmt::format("  {}: {}{}", verdict_line(event.verdict), event.id, of_runs));
  }
  if (verdicts.empty()) return "";
  std::string counts;
  std::string lines;
  std::size_t left = kMostFailures;
  for (const auto& [kind, of_kind] : verdicts) {
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", of_kind.size(), name_of(kind));
    for (const std::string& line : of_kind) {
      if (kind == VerdictKind::not_triaged || left == 0) break;
      lines += line + '\n';
      --left;
    }
  }
  return fmt::format("verdicts (--triage): {}\n{}", counts, lines);
}

struct Failed {
  std::size_t index = 0;  // of the case
  std::string name;       // case_name
  std::string word;       // outcome_word
  std::string reason;     // its first line, shortened
};

Failed failed(const CaseFinished& event) {
  const std::string reason = passed_unexpectedly(event) ? expected_text(event) : cause_or_reason(event);
  const std::string_view first = protocol::first_line(reason);
  return {.index = event.index,
          .name = case_name(event),
          .word = std::string(outcome_word(event)),
          .reason = cut_middle(first, kReasonColumns) + (first.size() < reason.size() ? " .." : "")};
}

// Returns the lines of the failures of one kind, of which at most `most` are listed.
std::string kind_text(const std::vector<Failed>& kind, std::size_t most) {
  const Failed& first = kind.front();
  const std::string head = fmt::format("  {:<7}  ", first.word);
  const std::string reason = first.reason.empty() ? "" : ": " + first.reason;
  if (kind.size() == 1) return fmt::format("{}{}{}\n", head, first.name, reason);
  const bool equal = std::ranges::all_of(kind, [&](const Failed& one) { return one.reason == first.reason; });
  return fmt::format("{}{}{}{}\n", head, count_of(kind.size(), "case"), equal ? "" : ", the first", reason) +
         first_lines(mapped(kind, &Failed::name), most, std::string(head.size(), ' '));
}

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

std::string tries_text(const ReportedCase& c) {
  const CaseFinished& event = c.end();
  if (c.tries.size() == 1) return event.flaky ? "flaky" : "";
  std::string text = event.flaky ? "flaky: " : "";
  for (const ReportedTry& each : c.tries | std::views::take(c.tries.size() - 1)) {
    text += fmt::format("{}, ", to_string(each.end.outcome));
  }
  return text + fmt::format("then {} on try {}", to_string(event.outcome), c.tries.size());
}

std::string list_of_failures(const RunReport& run, std::size_t least) {
  FailureKinds numbers;
  std::vector<std::vector<Failed>> kinds;
  std::size_t count = 0;
  for (const CaseFinished& event : ends_of(run)) {
    if (!is_failure(event) || is_try(event.search)) continue;
    const std::size_t kind = numbers.add(event);
    if (kind == kinds.size()) kinds.emplace_back();
    kinds[kind].push_back(failed(event));
    ++count;
  }
  if (count < least) return "";
  for (std::vector<Failed>& kind : kinds) std::ranges::stable_sort(kind, {}, &Failed::index);
  std::ranges::stable_sort(kinds, {}, [](const std::vector<Failed>& kind) { return kind.front().index; });
  std::string out = fmt::format("{} failed:\n", count);
  const std::size_t shown_kinds = std::min(kinds.size(), kMostFailures);
  std::size_t left_out = 0;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    if (k < shown_kinds) out += kind_text(kinds[k], kMostFailures / shown_kinds);
    if (k >= shown_kinds) left_out += kinds[k].size();
  }
  if (left_out > 0) out += fmt::format("  and {} more of other kinds\n", left_out);
  if (run.header.rerun_failed) out += fmt::format("rerun them: {}\n", *run.header.rerun_failed);
  return out;
}

std::string summary_text(const RunReport& run) {
  return durations_text(run) + repeats_text(run) + retries_text(run) + expectations_text(run) + remarks_text(run) +
         reasons_text(run) + verdicts_text(run);
}

}  // namespace cp_pool
