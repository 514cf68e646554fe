#include "worker/aggregate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace cp_pool {
namespace {

using protocol::ResultEvent;
using testing::HasSubstr;

RankOutcome with_verdict(int rank, CaseOutcome verdict, const std::string& reason = "") {
  RankOutcome out;
  out.rank = rank;
  out.verdict = verdict;
  out.reason = reason;
  return out;
}

RankOutcome with_failure(int rank, FailureKind kind, const std::string& summary,
                         FailurePhase phase = FailurePhase::run) {
  RankOutcome out;
  out.rank = rank;
  if (phase == FailurePhase::barrier) out.verdict = CaseOutcome::pass;
  out.failure = Failure{kind, phase, summary, summary + "\nat the throw site"};
  return out;
}

ResultEvent result_of(std::vector<RankOutcome> outcomes, int world_size = 2, bool cancelled = false) {
  return aggregate(
      {.seq = 7, .world_size = world_size, .outcomes = std::move(outcomes), .cancelled = cancelled, .perf = {}});
}

// What came of the case, why, and the ranks in the order of the result: "!" after one that is not well, "~" if it was
// freed. "fail: rank 1: dq is wrong | 1! 0"
std::string said(std::vector<RankOutcome> outcomes, int world_size = 2, bool cancelled = false) {
  const ResultEvent result = result_of(std::move(outcomes), world_size, cancelled);
  std::string out = fmt::format("{}: {} |", to_string(result.outcome), result.reason);
  for (const auto& rank : result.ranks) {
    out += fmt::format(" {}{}{}", rank.rank, rank.ok ? "" : "!", rank.aborted ? "~" : "");
  }
  return out;
}

RankOutcome with_times(int rank, std::vector<double> step_ms) {
  RankOutcome out = with_verdict(rank, CaseOutcome::pass);
  out.perf.emplace().step_ms = std::move(step_ms);
  return out;
}

std::optional<protocol::PerfResult> perf_of(std::vector<RankOutcome> outcomes) {
  return aggregate({.seq = 7,
                    .world_size = 2,
                    .outcomes = std::move(outcomes),
                    .cancelled = false,
                    .perf = protocol::PerfRequest{.warmup = 2, .iterations = 4}})
      .perf;
}

TEST(Aggregate, TellsTheWorstOfTheRanksFirst) {
  const RankOutcome pass = with_verdict(0, CaseOutcome::pass);
  EXPECT_EQ(result_of({pass}).seq, 7);
  EXPECT_EQ(said({with_verdict(1, CaseOutcome::pass), pass}), "pass:  | 0 1");
  EXPECT_EQ(said({pass, with_verdict(1, CaseOutcome::fail, "dq is wrong")}), "fail: rank 1: dq is wrong | 1! 0");
  EXPECT_EQ(result_of({pass, with_verdict(1, CaseOutcome::fail, "dq is wrong")}).ranks[0].error, "dq is wrong");
  EXPECT_EQ(said({with_verdict(0, CaseOutcome::skip, "no"), with_verdict(1, CaseOutcome::skip, "no")}),
            "skip: no | 0 1");
  EXPECT_EQ(said({pass, with_verdict(1, CaseOutcome::skip, "no")}),
            "error: the ranks disagree: rank 0 ran the case, but rank 1 skipped it: no | 0 1");
  EXPECT_EQ(said({with_failure(0, FailureKind::exception, "boom"), with_verdict(1, CaseOutcome::fail, "wrong")}),
            "fail: rank 1: wrong | 0! 1!")
      << "a wrong answer counts more than an error elsewhere";
  EXPECT_EQ(said({pass, with_failure(1, FailureKind::aborted, "freed"), with_failure(2, FailureKind::exception, "boom"),
                  with_failure(3, FailureKind::exception, "boom too")},
                 4),
            "error: rank 2: boom | 2! 3! 0 1!~");
  EXPECT_EQ(said({}), "error: no rank came back | 0! 1!");
  EXPECT_EQ(said({with_failure(0, FailureKind::aborted, "a"), with_failure(1, FailureKind::aborted, "b")}, 2, true),
            "cancelled: cancelled on request | 0! 1!~");
}

// Every kind explains those after it, whichever rank reported first.
TEST(Aggregate, TheFirstKindOfFailureExplainsTheOthers) {
  const auto both = [](FailureKind first, FailureKind second) {
    return said({with_failure(0, first, "first"), with_failure(1, second, "second")});
  };
  EXPECT_EQ(both(FailureKind::exception, FailureKind::assertion), "fail: rank 1: second | 1! 0!");
  EXPECT_EQ(both(FailureKind::unsupported, FailureKind::exception), "error: rank 1: second | 1! 0");
  EXPECT_EQ(both(FailureKind::aborted, FailureKind::exception), "error: rank 1: second | 1! 0!~");
  EXPECT_EQ(both(FailureKind::communication, FailureKind::timeout), "timeout: rank 1: second | 1! 0!~");
  EXPECT_EQ(both(FailureKind::aborted, FailureKind::unsupported), "skip: rank 1: second | 1 0!~");
  EXPECT_EQ(both(FailureKind::unsupported, FailureKind::unsupported), "skip: rank 0: first | 0 1");
  EXPECT_EQ(said({with_failure(0, FailureKind::communication, "lost")}), "error: rank 0: lost | 0! 1!");
  EXPECT_EQ(said({with_failure(0, FailureKind::unsupported, "no"), with_verdict(1, CaseOutcome::fail, "wrong")}),
            "fail: rank 1: wrong | 0 1!");
  const auto failed = result_of({with_failure(0, FailureKind::exception, "boom")});
  EXPECT_EQ(failed.ranks.at(0).error, "boom\nat the throw site");
}

TEST(Aggregate, ARankThatComputesExplainsATimeoutOfThoseThatWaitForIt) {
  RankOutcome waiting = with_failure(1, FailureKind::timeout, "still in all_gather");
  waiting.failure->collective = "all_gather";
  EXPECT_EQ(said({waiting, with_failure(0, FailureKind::timeout, "still in a loop")}),
            "timeout: rank 0: still in a loop | 0! 1!");
}

TEST(Aggregate, NamesTheRanksThatDidNotDeclineWhatAnotherDeclined) {
  RankOutcome declined = with_failure(1, FailureKind::exception, "ValueError: no backend");
  declined.declined = true;
  const RankOutcome freed = with_failure(0, FailureKind::aborted, "freed in all_reduce");
  const ResultEvent result = result_of({freed, declined}, 4);
  EXPECT_EQ(result.outcome, CaseOutcome::error);
  EXPECT_EQ(result.reason, "rank 1: ValueError: no backend; ranks 0, 2, 3 did not refuse the case");
  const RankOutcome thrown = with_failure(0, FailureKind::exception, "ValueError: no backend, after an operation");
  EXPECT_EQ(result_of({declined, thrown}).reason, "rank 0: ValueError: no backend, after an operation");
}

TEST(Aggregate, SaysOnceWhatRanksRemarkOfTheBackend) {
  RankOutcome first = with_verdict(0, CaseOutcome::pass);
  first.remarks = {"b", "a"};
  RankOutcome second = with_verdict(1, CaseOutcome::pass);
  second.remarks = {"a"};
  EXPECT_EQ(result_of({first, second}).backend_note, "a; b");
  EXPECT_EQ(result_of({with_verdict(0, CaseOutcome::pass), with_verdict(1, CaseOutcome::pass)}).backend_note, "");
}

TEST(Aggregate, SaysWhatEveryRankCouldNotWriteAndPassesAllTheSame) {
  RankOutcome first = with_verdict(0, CaseOutcome::pass);
  first.lost_outputs = {{"dump", "cannot write d"}, {"trace", "cannot write t0"}};
  RankOutcome second = with_verdict(1, CaseOutcome::pass);
  second.lost_outputs = {{"trace", "cannot write t1"}};
  const ResultEvent result = result_of({second, first});
  EXPECT_EQ(result.outcome, CaseOutcome::pass);
  ASSERT_EQ(result.lost_outputs.size(), 3U);
  EXPECT_EQ(result.lost_outputs[0].output, "dump");
  EXPECT_EQ(result.lost_outputs[1].message, "cannot write t0");
  EXPECT_EQ(result.lost_outputs[2].message, "cannot write t1");
}

TEST(Aggregate, NamesRanksThatLeftWhileOthersWaitInACollective) {
  const std::string summary = "at 90 % of the case's time still in all_gather of ring (mine.py:3)";
  RankOutcome waiting = with_failure(2, FailureKind::timeout, summary);
  waiting.failure->collective = "all_gather";
  const RankOutcome judging = with_failure(0, FailureKind::timeout, "all_reduce timed out", FailurePhase::judge);
  const RankOutcome freed = with_failure(1, FailureKind::aborted, "freed", FailurePhase::barrier);
  EXPECT_EQ(result_of({judging, freed, waiting}, 3).reason,
            "rank 2: " + summary + "; ranks 0, 1 left without entering all_gather");
  EXPECT_EQ(result_of({judging, waiting}).reason, "rank 2: " + summary + "; rank 0 left without entering all_gather");
  RankOutcome also_waiting = waiting;
  also_waiting.rank = 1;
  EXPECT_EQ(result_of({waiting, also_waiting}).reason, "rank 2: " + summary);
  waiting.failure->collective.clear();
  EXPECT_EQ(result_of({judging, waiting}).reason, "rank 2: " + summary)
      << "a rank that sleeps keeps the others waiting";
}

TEST(Aggregate, SaysHowRanksDifferOnTheirGroupsAndWhatEachHasBegunLast) {
  const GroupOperation reduce{
      .name = "all_reduce", .group = "0", .members = {0, 1}, .tensor = "float32 [4]", .bytes = 16};
  RankOutcome waiting = with_failure(0, FailureKind::timeout, "still in all_reduce");
  waiting.history = GroupHistory{.rank = 0, .begun = {reduce}};
  RankOutcome left = with_failure(1, FailureKind::aborted, "freed", FailurePhase::barrier);
  left.history = GroupHistory{.rank = 1, .begun = {}, .left = true};
  const ResultEvent result = result_of({waiting, left});
  EXPECT_EQ(result.reason,
            "rank 0: still in all_reduce; rank 1 left without entering all_reduce #1; rank 0 waits in it");
  EXPECT_TRUE(result.ranks[0].error.ends_with(
      "\nlast operation on a process group: all_reduce #1 of float32 [4], on ranks 0, 1"));
  waiting.failure->kind = FailureKind::exception;
  EXPECT_EQ(result_of({waiting, left}).reason, "rank 0: still in all_reduce") << "rank 1 had no time to enter it";
}

TEST(Aggregate, AnAnswerStandsIfOnlyTheBarrierAfterItFailed) {
  const RankOutcome freed = with_failure(0, FailureKind::aborted, "freed", FailurePhase::barrier);
  RankOutcome lost = with_failure(1, FailureKind::communication, "mismatch", FailurePhase::barrier);
  EXPECT_EQ(said({freed, lost}), "pass:  | 1 0~");
  EXPECT_THAT(result_of({freed, lost}).ranks[0].error, HasSubstr("mismatch"));
  lost.verdict = CaseOutcome::fail;
  lost.reason = "dq is wrong";
  EXPECT_EQ(said({freed, lost}), "fail: rank 1: dq is wrong | 1! 0~");
}

TEST(Aggregate, TheBackendIsThatOfTheFirstRankThatNamesOne) {
  RankOutcome named = with_verdict(1, CaseOutcome::pass);
  named.backend = "math";
  EXPECT_EQ(result_of({with_verdict(0, CaseOutcome::pass), named, with_verdict(2, CaseOutcome::pass)}, 3).backend,
            "math");
}

TEST(Aggregate, DoesNotNameARankTwice) {
  EXPECT_EQ(result_of({with_failure(0, FailureKind::timeout, "rank 0: barrier: timed out")}).reason,
            "rank 0: barrier: timed out");
}

TEST(Aggregate, ATimeoutAtTheBarrierNamesTheRanksThatWereMissing) {
  const auto reason = [](FailurePhase phase, std::vector<int> absent) {
    return aggregate({.seq = 7,
                      .world_size = 4,
                      .outcomes = {with_failure(0, FailureKind::timeout, "timed out", phase)},
                      .cancelled = false,
                      .absent = std::move(absent),
                      .perf = {}})
        .reason;
  };
  EXPECT_EQ(reason(FailurePhase::barrier, {2}), "rank 0: timed out: rank 2 had not reached it");
  EXPECT_EQ(reason(FailurePhase::barrier, {1, 3}), "rank 0: timed out: ranks 1, 3 had not reached it");
  EXPECT_EQ(reason(FailurePhase::barrier, {}), "rank 0: timed out");
  EXPECT_EQ(reason(FailurePhase::run, {2}), "rank 0: timed out");
}

TEST(Aggregate, ARankThatNeverCameBackIsNotAPass) {
  const RankOutcome late = with_failure(0, FailureKind::timeout, "barrier", FailurePhase::barrier);
  EXPECT_EQ(said({late}), "timeout: rank 0: barrier | 0 1!");
  EXPECT_THAT(result_of({late}).ranks[1].error, HasSubstr("it neither answered nor reacted to the abort"));
}

TEST(Aggregate, TimesAreThoseOfTheSlowestRankAndChecksComeByRank) {
  RankOutcome slow = with_verdict(1, CaseOutcome::pass);
  slow.timings_ms = {{"forward", 5}, {"backward", 1}};
  slow.checks = {{.tensor = "out", .rank = 1, .worst_index = {}, .message = ""}};
  slow.backend = "math";
  RankOutcome fast = with_verdict(0, CaseOutcome::pass);
  fast.timings_ms = {{"forward", 2}, {"backward", 3}};
  fast.checks = {{.tensor = "out", .rank = 0, .worst_index = {}, .message = ""}};
  const ResultEvent result = result_of({slow, fast});
  EXPECT_EQ(result.timings_ms.at("forward"), 5);
  EXPECT_EQ(result.ranks[0].timings_ms, fast.timings_ms);
  EXPECT_EQ(result.ranks[1].timings_ms, slow.timings_ms);
  EXPECT_EQ(result.timings_ms.at("backward"), 3);
  ASSERT_EQ(result.checks.size(), 2U);
  EXPECT_EQ(result.checks[0].rank, 0);
  EXPECT_EQ(result.hygiene.size(), 2U);
  EXPECT_EQ(result.backend, "math");
}

TEST(Aggregate, AStepTakesAsLongAsItsSlowestRank) {
  RankOutcome first = with_times(0, {1, 9, 2, 3});
  first.perf->one_rank_ms = summarise({7, 5, 6, 100});
  const auto perf = perf_of({with_times(1, {4, 1, 1, 8}), first});
  ASSERT_TRUE(perf);
  EXPECT_EQ(perf->request.warmup, 2);
  EXPECT_EQ(perf->request.iterations, 4);
  EXPECT_EQ(perf->step_ms.median, (4 + 8) / 2.0);  // the median of 4, 9, 2, 8
  EXPECT_EQ(perf->step_ms.min, 2);
  EXPECT_EQ(perf->step_ms.max, 9);
  ASSERT_EQ(perf->ranks.size(), 2U);
  EXPECT_EQ(perf->ranks[1].rank, 1);
  EXPECT_EQ(perf->ranks[1].ms.median, 2.5);
  ASSERT_TRUE(perf->one_rank_ms);
  EXPECT_EQ(perf->one_rank_ms->median, 6.5);
}

TEST(Aggregate, AStepSendsAsMuchAsItsRankThatSendsMost) {
  RankOutcome first = with_times(0, {9});
  RankOutcome second = with_times(1, {1});
  first.perf->bytes_sent = 100;
  second.perf->bytes_sent = 300;
  EXPECT_EQ(perf_of({second, first})->bytes_sent, 300);
  first.perf->bytes_sent = second.perf->bytes_sent = 0;
  EXPECT_EQ(perf_of({second, first})->bytes_sent, 0);
  EXPECT_FALSE(perf_of({with_times(0, {1}), with_times(1, {1})})->bytes_sent) << "nobody counted them";
}

TEST(Aggregate, SaysWhyThereIsNoTimeOfOneRank) {
  RankOutcome first = with_times(0, {1});
  first.perf->one_rank_reason = "does not fit";
  const auto perf = perf_of({first, with_times(1, {1})});
  ASSERT_TRUE(perf);
  EXPECT_FALSE(perf->one_rank_ms);
  EXPECT_EQ(perf->one_rank_reason, "does not fit");
}

TEST(Aggregate, HasNoTimesUnlessEveryRankHasThemAndPassed) {
  EXPECT_FALSE(perf_of({with_times(0, {1, 2}), with_verdict(1, CaseOutcome::pass)}));
  EXPECT_FALSE(perf_of({with_times(0, {1, 2}), with_times(1, {1})}));
  EXPECT_FALSE(perf_of({with_times(0, {1}), with_verdict(1, CaseOutcome::fail, "wrong")}));
  EXPECT_FALSE(result_of({with_times(0, {1}), with_times(1, {1})}).perf);
  RankOutcome wrong = with_times(1, {1});
  wrong.verdict = CaseOutcome::fail;
  EXPECT_FALSE(perf_of({with_times(0, {1}), wrong}));
}

TEST(Aggregate, TheErrorTextOfARankIsCut) {
  RankOutcome failed;
  failed.failure.emplace().text = std::string(100000, 'x');
  const auto result = aggregate({.seq = 1, .world_size = 1, .outcomes = {failed}, .cancelled = false, .perf = {}});
  EXPECT_EQ(result.ranks.at(0).error.size(), protocol::kMaxErrorBytes);
}

CaseSummary failed_summary() {
  CaseSummary summary{
      .seq = 7,
      .world_size = 2,
      .outcomes = {with_verdict(0, CaseOutcome::fail, "dq is wrong"), with_verdict(1, CaseOutcome::pass)},
      .cancelled = false,
      .perf = {},
      .diagnosis_ms = 1000};
  for (RankOutcome& outcome : summary.outcomes) outcome.can_diagnose = true;
  return summary;
}

bool is_diagnosed(const CaseSummary& summary, bool healthy = true) {
  ResultEvent result = aggregate(summary);
  result.healthy = healthy;
  return can_be_diagnosed(summary, result);
}

TEST(Aggregate, AFailThatEveryRankHasFinishedCanBeDiagnosedIfAskedFor) {
  EXPECT_TRUE(is_diagnosed(failed_summary()));
  EXPECT_FALSE(is_diagnosed(failed_summary(), /*healthy=*/false));
  CaseSummary summary = failed_summary();
  summary.diagnosis_ms.reset();
  EXPECT_FALSE(is_diagnosed(summary)) << "nobody asks";
  summary = failed_summary();
  summary.outcomes[1].can_diagnose = false;
  EXPECT_FALSE(is_diagnosed(summary)) << "a rank has kept nothing";
  summary = failed_summary();
  summary.outcomes[1].failure = Failure{};
  EXPECT_FALSE(is_diagnosed(summary)) << "a rank has failed otherwise";
  summary = failed_summary();
  summary.outcomes[0].verdict = CaseOutcome::pass;
  EXPECT_FALSE(is_diagnosed(summary)) << "it passes";
  summary = failed_summary();
  summary.cancelled = true;
  EXPECT_FALSE(is_diagnosed(summary));
}

DiagnosisDone diagnosis_done(int rank, const std::string& cause = "") {
  DiagnosisDone out;
  out.seq = 7;
  out.outcome.rank = rank;
  if (!cause.empty()) out.diagnosis.emplace().cause = cause;
  return out;
}

TEST(AggregateDiagnosis, IsThatOfRank0) {
  const auto event =
      aggregate_diagnosis(failed_summary(), {diagnosis_done(1), diagnosis_done(0, "the mask is missing")}, "");
  EXPECT_EQ(event.seq, 7);
  EXPECT_TRUE(event.healthy);
  EXPECT_EQ(event.diagnosis.cause, "the mask is missing");
}

TEST(AggregateDiagnosis, IsTheSurestOfTheGroups) {
  DiagnosisDone sure = diagnosis_done(2, "the mask is missing");
  sure.diagnosis->certainty = Certainty::likely;
  const auto event = aggregate_diagnosis(failed_summary(), {diagnosis_done(0, "all results are right"), sure}, "");
  EXPECT_EQ(event.diagnosis.cause, "the mask is missing");
  EXPECT_THAT(event.diagnosis.evidence,
              testing::ElementsAre("this is about the group of ranks that begins with rank 2"));
}

TEST(AggregateDiagnosis, StandsIfOnlyTheBarrierAfterItFailed) {
  DiagnosisDone late = diagnosis_done(1);
  late.outcome.failure = Failure{FailureKind::timeout, FailurePhase::barrier, "barrier", "barrier"};
  const auto event =
      aggregate_diagnosis(failed_summary(), {diagnosis_done(0, "found"), late}, "not every rank came back");
  EXPECT_EQ(event.diagnosis.cause, "found");
}

TEST(AggregateDiagnosis, IsUnknownIfARankFailedInItAndNamesWhatExplainsTheRest) {
  DiagnosisDone freed = diagnosis_done(0);
  freed.outcome = with_failure(0, FailureKind::aborted, "aborted");
  DiagnosisDone thrown = diagnosis_done(1);
  thrown.outcome = with_failure(1, FailureKind::exception, "boom");
  auto event = aggregate_diagnosis(failed_summary(), {freed, thrown}, "");
  EXPECT_EQ(event.diagnosis.certainty, Certainty::unknown);
  EXPECT_EQ(event.diagnosis.id, "unknown");
  EXPECT_EQ(event.diagnosis.cause, "the diagnosis failed: rank 1: boom");
  event = aggregate_diagnosis(failed_summary(), {diagnosis_done(0, "found"), thrown}, "rebuilding failed");
  EXPECT_EQ(event.diagnosis.cause, "the diagnosis failed: rank 1: boom; rebuilding failed");
  event = aggregate_diagnosis(failed_summary(), {diagnosis_done(0, "found")}, "not every rank came back");
  EXPECT_EQ(event.diagnosis.cause, "the diagnosis failed: not every rank came back") << "rank 1 is not there";
  EXPECT_EQ(aggregate_diagnosis(failed_summary(), {}, "").diagnosis.cause,
            "the diagnosis failed: rank 0 gave no answer");
}

TEST(Aggregate, TheValueIsThatOfRank0) {
  RankOutcome first = with_verdict(0, CaseOutcome::pass);
  first.value.value = 3;
  RankOutcome second = with_verdict(1, CaseOutcome::pass);
  second.value.value = 4;
  EXPECT_EQ(result_of({second, first}).value.value, 3);
}

}  // namespace
}  // namespace cp_pool
