#include "driver/report/summary.h"

#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

TEST(Ledger, NamesPassFailAndWhateverElseHappened) {
  EXPECT_EQ(ledger_line(run_finished({68, 0, 12, 0, 0, 0, 0, 0, 0})),
            "80 expanded = 68 pass + 0 fail + 12 skip, 41.2 s");
  EXPECT_EQ(ledger_line(run_finished({1, 2, 3, 4, 5, 6, 7, 8, 9}, 900)),
            "45 expanded = 1 pass + 2 fail + 3 skip + 4 error + 5 timeout + 6 crash + 7 infra + 8 cancelled + "
            "9 not-run, 900 ms");
}

TEST(Ledger, SaysSoWhenItDoesNotAddUp) {
  RunFinished run = run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0}, 900);
  run.expanded = 2;
  EXPECT_EQ(ledger_line(run), "2 expanded != 1 pass + 0 fail, 900 ms (internal error: the ledger does not add up)");
}

TEST(Quantile, IsTheNearestRank) {
  EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({4, 3, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({4, 3, 1, 2}, 0.95), 4);
  EXPECT_EQ(quantile({7}, 0.01), 7);
}

TEST(SummaryText, GivesQuantilesOfTheCasesThatRanAndGroupsTheReasonsOfTheOthers) {
  Summary summary;
  summary.add(finished(0, "a", CaseOutcome::pass));             // 100 ms
  summary.add(finished(1, "b", CaseOutcome::fail, "wrong"));    // 200 ms
  summary.add(finished(2, "c", CaseOutcome::skip, "no bias"));  // not counted in the quantiles
  summary.add(finished(3, "d", CaseOutcome::skip, "no window"));
  summary.add(finished(4, "e", CaseOutcome::skip, "no window"));
  summary.add(finished(5, "f", CaseOutcome::not_run, ""));
  for (const char* id : {"g", "h"}) summary.add(finished(6, id, CaseOutcome::infra, "no worker"));
  EXPECT_EQ(summary.text(),
            "2 ran: p50 200 ms, p95 200 ms, max 200 ms a case\n"
            "2 skip: no window\n"
            "1 skip: no bias\n"
            "2 infra (not run): no worker\n"
            "1 not-run: no reason given\n");
}

TEST(SummaryText, LeavesTheFirstUseOfABackendInAPoolOutOfTheMedian) {
  const auto p50_of = [](const std::vector<CaseFinished>& events) {
    Summary summary;
    for (const CaseFinished& event : events) summary.add(event);
    return summary.text();
  };
  CaseFinished other_backend = finished(5, "b", CaseOutcome::pass);
  other_backend.backend = "flash";
  CaseFinished other_pool = finished(6, "c", CaseOutcome::pass);
  other_pool.pool = PoolId{"cpu/2", 2};
  const CaseFinished first = finished(4, "a", CaseOutcome::pass);
  EXPECT_THAT(p50_of({first, other_backend, other_pool, finished(0, "d", CaseOutcome::pass)}),
              ::testing::StartsWith("4 ran: p50 100 ms, p95 700 ms, max 700 ms"));
  EXPECT_THAT(p50_of({first, other_backend}), ::testing::StartsWith("2 ran: p50 500 ms, p95 600 ms")) << "all are";
}

TEST(SummaryText, SaysWhatOtherBackendsComputed) {
  Summary summary;
  CaseFinished event = finished(0, "a", CaseOutcome::pass);
  event.backend_note = "the backward of tiles ran as math: refused";
  for (int i = 0; i < 2; ++i) summary.add(event);
  EXPECT_THAT(summary.text(), ::testing::HasSubstr("\n2 cases with a remark: the backward of "
                                                   "tiles ran as math: refused\n"));
}

TEST(SummaryText, SaysHowManyCasesWereJudgedWithOtherBounds) {
  Summary summary;
  CaseFinished event = finished(0, "a", CaseOutcome::pass);
  summary.add(event);
  EXPECT_THAT(summary.text(), ::testing::Not(::testing::HasSubstr("judged with")));
  event.bound_factor = 3;
  for (int i = 0; i < 2; ++i) summary.add(event);
  EXPECT_THAT(summary.text(), ::testing::HasSubstr("\n2 cases judged with bounds x 3\n"));
}

TEST(SummaryText, SaysOnceThatRanksShareTheWorkUnevenly) {
  Summary summary;
  for (const std::int64_t most : {3, 5, 4, 1}) {
    CaseFinished event = finished(0, fmt::format("case-{}", most), CaseOutcome::pass);
    attention(event.payload).batch = 2;
    attention(event.payload).seqlen_q = 2048;
    attention(event.payload).seqlen_kv = 2048;
    event.ranks = {{{.pairs = 1}, 0}, {{.pairs = most}, 1}, {{.pairs = 1}, 2}};
    summary.add(event);
  }
  EXPECT_THAT(summary.text(), ::testing::HasSubstr("\n3 cases with right results, and ranks that share the work "
                                                   "unevenly: rank 1 computes 2.14 x the mean of the ranks in case-5 "
                                                   "(cp-pool explain)\n"));
}

TEST(SummaryText, SaysWhetherSeveralRunsOfACaseGaveTheSameBits) {
  struct Run {
    std::string id;
    std::optional<std::vector<int>> other_bits;
    bool deterministic = false;
  };
  const auto text_of = [](const std::vector<Run>& runs) {
    Summary summary;
    for (const Run& run : runs) {
      CaseFinished event = finished(0, run.id, CaseOutcome::pass);
      attention(event.payload).backend = Backend::cudnn;
      attention(event.payload).deterministic = run.deterministic;
      event.pool = PoolId{.key = "cuda/2", .generation = 1};
      event.other_bits = run.other_bits;
      summary.add(event);
    }
    const std::string text = summary.text();
    return text.substr(text.find('\n') + 1);
  };
  const std::vector<int> none;
  EXPECT_EQ(text_of({{"a", std::nullopt}}), "");
  EXPECT_EQ(text_of({{"a", std::nullopt}, {"a", none}, {"a", none}}),
            "1 repeated: every run gave the same output bits\n");
  const std::string unpromised =
      " repeated: other output bits, of kernels that repeat them only with --deterministic\n";
  EXPECT_EQ(text_of({{"a", {{1}}}, {"a", none}, {"b", none}}), "1 of 2" + unpromised)
      << "one run that differs is enough";
  EXPECT_EQ(text_of({{"a", {{1}}, true}}), "1 of 1 repeated: other output bits\n");
  EXPECT_EQ(text_of({{"a", {{1}}, true}, {"b", {{0}}}, {"c", {{0}}}}),
            "1 of 3 repeated: other output bits\n2 of 3" + unpromised);
}

TEST(SummaryFailures, StandTogetherWithTheFirstLineOfTheirReasons) {
  Summary summary;
  summary.add(finished(0, "a", CaseOutcome::fail, "dq is wrong\nand more"));
  EXPECT_EQ(summary.failures("again"), "") << "a single one is easy to find";
  summary.add(finished(1, "b", CaseOutcome::pass));
  summary.add(finished(2, "c", CaseOutcome::infra, "no worker"));
  summary.add(finished(3, "d", CaseOutcome::timeout, "socket: " + std::string(99, 'x') + ": Too many open files"));
  summary.add(finished(4, "e", CaseOutcome::crash, ""));
  const std::string list =
      "3 failed:\n  fail     a: dq is wrong ..\n  timeout  d: socket: .. Too many open files\n  crash    e\n";
  EXPECT_EQ(summary.failures(std::nullopt), list);
  EXPECT_EQ(summary.failures("again"), list + "rerun them: again\n");
}

constexpr const char* kTwoErrorsAndACrash =
    "3 failed:\n"
    "  error    2 cases: boom\n"
    "           a\n"
    "           c\n"
    "  crash    b: boom\n";

TEST(SummaryFailures, OfOneReasonStandUnderIt) {
  Summary summary;
  summary.add(finished(0, "a", CaseOutcome::error, "boom"));
  summary.add(finished(1, "b", CaseOutcome::crash, "boom"));
  summary.add(finished(2, "c", CaseOutcome::error, "boom"));
  EXPECT_EQ(summary.failures(std::nullopt), kTwoErrorsAndACrash);
}

TEST(SummaryFailures, OfOneCauseStandUnderIt) {
  Summary summary;
  for (std::size_t i = 0; i < 3; ++i) {
    CaseFinished event = finished(i, fmt::format("case-{}", i), CaseOutcome::fail, fmt::format("row {} is wrong", i));
    event.diagnosis = example_diagnosis();
    if (i == 1) event.diagnosis->cause = "the window's left edge is 31 instead of 32 on all ranks";
    if (i == 2) event.diagnosis->certainty = Certainty::unknown;
    summary.add(event);
  }
  EXPECT_EQ(summary.failures(std::nullopt),
            "3 failed:\n"
            "  fail     2 cases, the first: the window's left edge is 63 instead of 64 on all ranks\n"
            "           case-0\n"
            "           case-1\n"
            "  fail     case-2: row 2 is wrong\n");
}

TEST(SummaryFailures, OfManyAreTheFirstTwenty) {
  Summary summary;
  for (std::size_t i = 0; i < 23; ++i) summary.add(finished(i, fmt::format("case-{}", i), CaseOutcome::error, "boom"));
  EXPECT_THAT(summary.failures(std::nullopt), ::testing::EndsWith("           case-19\n           and 3 more\n"));
  Summary others;
  for (std::size_t i = 0; i < 23; ++i) {
    others.add(finished(i, fmt::format("case-{}", i), CaseOutcome::error, "boom " + std::string(i + 1, 'x')));
  }
  EXPECT_THAT(others.failures(std::nullopt),
              ::testing::EndsWith("  error    case-19: boom xxxxxxxxxxxxxxxxxxxx\n  and 3 more of other kinds\n"));
}

// 144 failures of one fault do not hide the failure of another.
TEST(SummaryFailures, OfEachKindAreShown) {
  Summary summary;
  for (std::size_t i = 0; i < 144; ++i) {
    summary.add(finished(i, fmt::format("case-{}", i), CaseOutcome::error, fmt::format("rank {}: boom {}", i % 4, i)));
  }
  summary.add(finished(144, "other", CaseOutcome::error, "no memory"));
  EXPECT_THAT(summary.failures(std::nullopt),
              ::testing::AllOf(::testing::StartsWith("145 failed:\n  error    144 cases, the first: rank 0: boom 0\n"),
                               ::testing::HasSubstr("           case-9\n           and 134 more\n"),
                               ::testing::EndsWith("  error    other: no memory\n")));
}

TEST(SummaryFailures, StandInTheOrderOfTheListOfCases) {
  Summary summary;
  summary.add(finished(2, "c", CaseOutcome::error, "boom"));
  summary.add(finished(1, "b", CaseOutcome::crash, "boom"));
  summary.add(finished(0, "a", CaseOutcome::error, "boom"));
  EXPECT_EQ(summary.failures(std::nullopt), kTwoErrorsAndACrash);
}

TEST(SummaryText, IsEmptyWithoutCases) {
  EXPECT_EQ(Summary{}.text(), "");
}

}  // namespace
}  // namespace cp_pool::test
