#include "worker/aggregate.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "worker/group_differences.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

using protocol::RankResult;
using protocol::ResultEvent;

const RankOutcome* find_verdict(const std::vector<RankOutcome>& outcomes, CaseOutcome verdict) {
  const auto found = std::ranges::find(outcomes, std::optional{verdict}, &RankOutcome::verdict);
  return found == outcomes.end() ? nullptr : &*found;
}

std::vector<int> missing_ranks(const CaseSummary& summary) {
  return ranks_without(summary.outcomes, &RankOutcome::rank, summary.world_size);
}

// Whether every rank reported a verdict, so that only the barrier after the case can have failed.
bool all_have_verdicts(const CaseSummary& summary) {
  return static_cast<int>(summary.outcomes.size()) == summary.world_size &&
         std::ranges::all_of(summary.outcomes, [](const RankOutcome& o) { return o.verdict.has_value(); });
}

std::string name_ranks(std::vector<int> ranks, const std::string& text) {
  std::ranges::sort(ranks);
  return fmt::format("{} {} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "), text);
}

using Verdict = std::pair<CaseOutcome, std::string>;  // and its reason

// Decides the outcome if every rank finished with a verdict and no answer is wrong.
Verdict decide_by_verdicts(const CaseSummary& summary) {
  const RankOutcome* const skip = find_verdict(summary.outcomes, CaseOutcome::skip);
  if (skip == nullptr) return {CaseOutcome::pass, ""};
  const RankOutcome* const pass = find_verdict(summary.outcomes, CaseOutcome::pass);
  if (pass == nullptr) return {CaseOutcome::skip, skip->reason};
  return {CaseOutcome::error, fmt::format("the ranks disagree: rank {} ran the case, but rank {} skipped it: {}",
                                          pass->rank, skip->rank, skip->reason)};
}

CaseOutcome outcome_of(FailureKind kind) {
  if (kind == FailureKind::assertion) return CaseOutcome::fail;
  if (kind == FailureKind::unsupported) return CaseOutcome::skip;
  return kind == FailureKind::timeout ? CaseOutcome::timeout : CaseOutcome::error;
}

// Names the ranks that had returned from the code under test in which the cause waited. Empty if there are none.
std::string describe_ranks_that_left(const CaseSummary& summary, const RankOutcome& cause) {
  if (cause.failure->kind != FailureKind::timeout || cause.failure->collective.empty()) return {};
  std::vector<int> left;
  for (const RankOutcome& outcome : summary.outcomes) {
    if (outcome.failure && outcome.failure->phase != FailurePhase::run) left.push_back(outcome.rank);
  }
  return left.empty() ? "" : "; " + name_ranks(left, "left without entering " + cause.failure->collective);
}

// Says how the ranks differ in what they have begun on their groups. Empty if they do not.
std::string describe_difference(const CaseSummary& summary, const RankOutcome& cause) {
  std::vector<GroupHistory> histories;
  for (const RankOutcome& outcome : summary.outcomes) {
    if (outcome.history) histories.push_back(*outcome.history);
  }
  const std::string found = group_differences(histories, cause.failure->kind == FailureKind::timeout);
  return found.empty() ? describe_ranks_that_left(summary, cause) : "; " + found;
}

// Names the ranks that ran the case if the cause is that one declined it alone. Empty if there are none.
std::string describe_ranks_that_ran(const CaseSummary& summary, const RankOutcome& cause) {
  if (!cause.declined) return {};
  std::vector<int> ran = missing_ranks(summary);
  for (const RankOutcome& outcome : summary.outcomes) {
    if (!outcome.declined) ran.push_back(outcome.rank);
  }
  return ran.empty() ? "" : "; " + name_ranks(ran, "did not refuse the case");
}

Verdict decide(const CaseSummary& summary) {
  if (summary.cancelled) return {CaseOutcome::cancelled, "cancelled on request"};
  if (const RankOutcome* const fail = find_verdict(summary.outcomes, CaseOutcome::fail)) {
    return {CaseOutcome::fail, name_rank(*fail, fail->reason)};
  }
  if (all_have_verdicts(summary)) return decide_by_verdicts(summary);
  const RankOutcome* const cause = find_cause(summary.outcomes);
  if (cause == nullptr) return {CaseOutcome::error, "no rank came back"};
  std::string reason = name_rank(*cause, cause->failure->summary) + describe_difference(summary, *cause) +
                       describe_ranks_that_ran(summary, *cause);
  const bool waited = cause->failure->kind == FailureKind::timeout && cause->failure->phase == FailurePhase::barrier;
  if (waited && !summary.absent.empty()) reason += ": " + name_ranks(summary.absent, "had not reached it");
  return {outcome_of(cause->failure->kind), std::move(reason)};
}

// Of a rank that waited, the end of its error. Empty if the rank has begun nothing on a group.
std::string describe_last_operation(const RankOutcome& outcome) {
  const std::string last = outcome.history ? last_group_operation(*outcome.history) : "";
  if (last.empty()) return {};
  // The last line of an exception's text says what it is.
  const char* const separator = outcome.failure->kind == FailureKind::communication ? "; " : "\n";
  return fmt::format("{}last operation on a process group: {}", separator, last);
}

RankResult to_rank_result(const RankOutcome& outcome, const RankOutcome* cause) {
  RankResult out;
  static_cast<RankMeasurements&>(out) = outcome;
  out.rank = outcome.rank;
  for (auto& [phase, ms] : out.timings_ms) ms = std::round(ms * 1000) / 1000;
  if (outcome.failure) {
    const FailureKind kind = outcome.failure->kind;
    // A rank that failed only in the barrier after the case is still right, unless its verdict was fail. A rank that
    // cannot run the case has done nothing wrong.
    out.ok = kind == FailureKind::unsupported ||
             (outcome.failure->phase == FailurePhase::barrier && outcome.verdict != CaseOutcome::fail);
    const bool freed = kind == FailureKind::communication || kind == FailureKind::aborted;
    out.aborted = freed && &outcome != cause;
    const std::string last = freed || kind == FailureKind::timeout ? describe_last_operation(outcome) : "";
    out.error = protocol::cut_text(outcome.failure->text, protocol::kMaxErrorBytes - last.size()) + last;
  } else if (outcome.verdict == CaseOutcome::fail) {
    out.ok = false;
    out.error = protocol::cut_text(outcome.reason, protocol::kMaxErrorBytes);
  }
  return out;
}

void add_ranks(const CaseSummary& summary, ResultEvent& result) {
  const RankOutcome* const cause = find_cause(summary.outcomes);
  for (const RankOutcome& outcome : summary.outcomes) result.ranks.push_back(to_rank_result(outcome, cause));
  for (const int rank : missing_ranks(summary)) {
    RankResult stuck;
    stuck.rank = rank;
    stuck.ok = false;
    stuck.error = "still busy: it neither answered nor reacted to the abort";
    result.ranks.push_back(stuck);
  }
  const int first = cause == nullptr ? -1 : cause->rank;
  std::ranges::sort(result.ranks, {},
                    [first](const RankResult& r) { return std::tuple{r.rank != first, r.ok || r.aborted, r.rank}; });
}

// Joins the remarks of all ranks without duplicates; most ranks have the same ones.
std::string join_remarks(const std::vector<const RankOutcome*>& by_rank) {
  std::set<std::string> remarks;
  for (const RankOutcome* outcome : by_rank) remarks.insert(outcome->remarks.begin(), outcome->remarks.end());
  return fmt::format("{}", fmt::join(remarks, "; "));
}

// Takes the slowest rank's time of every timed step, and joins the measurements of all ranks. Returns nothing unless
// every rank has timed the same number of steps.
std::optional<protocol::PerfResult> perf_of(const std::vector<const RankOutcome*>& by_rank,
                                            const std::optional<protocol::PerfRequest>& request) {
  if (!request || by_rank.empty() || !by_rank.front()->perf || by_rank.front()->perf->step_ms.empty()) return {};
  std::vector<double> slowest(by_rank.front()->perf->step_ms.size(), 0);
  protocol::PerfResult out;
  // Each of several groups has a first rank that runs the whole problem alone; the first group's measurements are used.
  static_cast<StepMeasurements&>(out) = *by_rank.front()->perf;
  out.request = *request;
  for (const RankOutcome* outcome : by_rank) {
    if (!outcome->perf || outcome->perf->step_ms.size() != slowest.size()) return {};
    std::ranges::transform(slowest, outcome->perf->step_ms, slowest.begin(), std::ranges::max);
    if (outcome != by_rank.front()) out.join(*outcome->perf);
    out.ranks.push_back({outcome->rank, summarise(outcome->perf->step_ms)});
  }
  out.step_ms = summarise(slowest);
  return out;
}

}  // namespace

std::string name_rank(const RankOutcome& outcome, const std::string& text) {
  const std::string prefix = fmt::format("rank {}: ", outcome.rank);
  return text.starts_with(prefix) ? text : prefix + text;
}

const RankOutcome* find_cause(const std::vector<RankOutcome>& outcomes) {
  const RankOutcome* cause = nullptr;
  // A rank that has declined the case explains less than one that failed, and one that waited for others less than one
  // that they may have waited for.
  const auto order = [](const RankOutcome& o) {
    return std::tuple{o.failure->kind, o.declined, o.failure->phase, !o.failure->collective.empty()};
  };
  for (const RankOutcome& outcome : outcomes) {
    if (!outcome.failure) continue;
    if (cause == nullptr || order(outcome) < order(*cause)) cause = &outcome;
  }
  return cause;
}

protocol::ResultEvent aggregate(const CaseSummary& summary) {
  ResultEvent result;
  result.seq = summary.seq;
  std::tie(result.outcome, result.reason) = decide(summary);
  add_ranks(summary, result);
  const std::vector<const RankOutcome*> by_rank = sorted_by_rank(summary.outcomes);
  for (const RankOutcome* outcome : by_rank) {
    result.checks.insert(result.checks.end(), outcome->checks.begin(), outcome->checks.end());
    result.hygiene.push_back(outcome->hygiene);
    result.lost_outputs.insert(result.lost_outputs.end(), outcome->lost_outputs.begin(), outcome->lost_outputs.end());
    for (const auto& [phase, ms] : outcome->timings_ms) {
      double& slowest = result.timings_ms[phase];
      slowest = std::max(slowest, ms);
    }
    if (result.backend.empty()) result.backend = outcome->backend;
    if (outcome->rank == 0) result.value = outcome->value;
    if (!result.bound_factor && outcome->bound_factor != 1) result.bound_factor = outcome->bound_factor;
  }
  result.backend_note = join_remarks(by_rank);
  if (result.outcome == CaseOutcome::pass) result.perf = perf_of(by_rank, summary.perf);
  return result;
}

bool can_be_diagnosed(const CaseSummary& summary, const protocol::ResultEvent& result) {
  return summary.diagnosis_ms && result.outcome == CaseOutcome::fail && result.healthy &&
         std::ranges::all_of(summary.outcomes, [](const RankOutcome& o) { return o.can_diagnose && !o.failure; });
}

protocol::DiagnosisEvent aggregate_diagnosis(const CaseSummary& summary, const std::vector<DiagnosisDone>& answers,
                                             const std::string& trouble) {
  protocol::DiagnosisEvent out;
  out.seq = summary.seq;
  std::vector<RankOutcome> outcomes;
  // Each group of ranks gives an answer. The surest counts, and of unknown ones that of a group with a wrong result.
  const DiagnosisDone* given = nullptr;
  const auto order = [](const DiagnosisDone& answer) {
    return std::tuple(answer.diagnosis->certainty, answer.diagnosis->strips.empty(), answer.outcome.rank);
  };
  bool all_came_through = static_cast<int>(answers.size()) == summary.world_size;
  for (const DiagnosisDone& answer : answers) {
    outcomes.push_back(answer.outcome);
    if (answer.diagnosis && (given == nullptr || order(answer) < order(*given))) given = &answer;
    if (answer.outcome.failure && answer.outcome.failure->phase == FailurePhase::run) all_came_through = false;
  }
  if (given != nullptr && all_came_through) {
    out.diagnosis = *given->diagnosis;
    if (std::ranges::count_if(answers, [](const DiagnosisDone& one) { return one.diagnosis.has_value(); }) > 1) {
      out.diagnosis.evidence.push_back(
          fmt::format("this is about the group of ranks that begins with rank {}", given->outcome.rank));
    }
    return out;
  }
  std::vector<std::string> troubles;
  if (const RankOutcome* const cause = find_cause(outcomes)) {
    troubles.push_back(name_rank(*cause, cause->failure->summary));
  }
  if (!trouble.empty()) troubles.push_back(trouble);
  if (troubles.empty()) troubles.emplace_back("rank 0 gave no answer");
  out.diagnosis.cause = fmt::format("the diagnosis failed: {}", fmt::join(troubles, "; "));
  return out;
}

}  // namespace cp_pool
