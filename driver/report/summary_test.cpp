#include "driver/report/summary.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "driver/report/time_tables.h"
#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

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

TEST(SummaryText, LeavesTheFirstUseOfABackendInAPoolOutOfTheMedian) {
  const auto p50_of = [](const std::vector<Event>& events) { return summary_text(report_of(events)); };
  CaseFinished other_backend = finished(5, "b", CaseOutcome::pass);
  other_backend.backend = "flash";
  CaseFinished other_pool = finished(6, "c", CaseOutcome::pass);
  other_pool.pool = PoolId{"cpu/2", 2};
  const CaseFinished first = finished(4, "a", CaseOutcome::pass);
  EXPECT_THAT(p50_of({first, other_backend, other_pool, finished(0, "d", CaseOutcome::pass)}),
              ::testing::StartsWith("4 ran: p50 100 ms, p95 700 ms, max 700 ms"));
  EXPECT_THAT(p50_of({first, other_backend}), ::testing::StartsWith("2 ran: p50 500 ms, p95 600 ms")) << "all are";
}

TEST(SummaryText, SaysWhetherSeveralRunsOfACaseGaveTheSameBits) {
  struct Run {
    std::string id;
    std::optional<std::vector<int>> other_bits;
    bool deterministic = false;
  };
  const auto text_of = [](const std::vector<Run>& runs) {
    std::vector<Event> events;
    for (const Run& run : runs) {
      CaseFinished event = finished(0, run.id, CaseOutcome::pass);
      attention(event.payload).backend = Backend::cudnn;
      attention(event.payload).deterministic = run.deterministic;
      event.pool = PoolId{.key = "cuda/2", .generation = 1};
      event.other_bits = run.other_bits;
      events.emplace_back(event);
    }
    const std::string text = summary_text(report_of(events));
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
  RunStarted header = run_started(5);
  header.rerun_failed = "again";
  std::vector<Event> events{header, finished(0, "a", CaseOutcome::fail, "dq is wrong\nand more")};
  EXPECT_EQ(list_of_failures(report_of(events)), "") << "a single one is easy to find";
  events.emplace_back(finished(1, "b", CaseOutcome::pass));
  events.emplace_back(finished(2, "c", CaseOutcome::infra, "no worker"));
  events.emplace_back(
      finished(3, "d", CaseOutcome::timeout, "socket: " + std::string(99, 'x') + ": Too many open files"));
  events.emplace_back(finished(4, "e", CaseOutcome::crash, ""));
  const std::string list =
      "3 failed:\n  fail     a: dq is wrong ..\n  timeout  d: socket: .. Too many open files\n  crash    e\n";
  EXPECT_EQ(list_of_failures(report_of(events)), list + "rerun them: again\n");
  events.erase(events.begin());
  EXPECT_EQ(list_of_failures(report_of(events)), list);
}

// 144 failures of one fault do not hide the failure of another.
TEST(SummaryFailures, OfEachKindAreShown) {
  std::vector<Event> events;
  for (std::size_t i = 0; i < 144; ++i) {
    events.emplace_back(
        finished(i, fmt::format("case-{}", i), CaseOutcome::error, fmt::format("rank {}: boom {}", i % 4, i)));
  }
  events.emplace_back(finished(144, "other", CaseOutcome::error, "no memory"));
  EXPECT_THAT(list_of_failures(report_of(events)),
              ::testing::AllOf(::testing::StartsWith("145 failed:\n  error    144 cases, the first: rank 0: boom 0\n"),
                               ::testing::HasSubstr("           case-9\n           and 134 more\n"),
                               ::testing::EndsWith("  error    other: no memory\n")));
}

TEST(SummaryFailures, StandInTheOrderOfTheListOfCases) {
  EXPECT_EQ(list_of_failures(
                report_of({finished(2, "c", CaseOutcome::error, "boom"), finished(1, "b", CaseOutcome::crash, "boom"),
                           finished(0, "a", CaseOutcome::error, "boom")})),
            "3 failed:\n"
            "  error    2 cases: boom\n"
            "           a\n"
            "           c\n"
            "  crash    b: boom\n");
}

TEST(SummaryText, IsEmptyWithoutCases) {
  EXPECT_EQ(summary_text(RunReport{}), "");
}

}  // namespace
}  // namespace cp_pool::test
