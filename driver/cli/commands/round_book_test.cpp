#include "driver/cli/commands/round_book.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using ::testing::ElementsAre;

using Outcomes = std::vector<std::pair<std::string, CaseOutcome>>;

// Tells the book the events of a round that took 1.5 s.
void tell(RoundBook& book, const Outcomes& outcomes) {
  book.begin();
  RunFinished end;
  for (const auto& [id, outcome] : outcomes) {
    CaseFinished finished;
    finished.id = id;
    finished.outcome = outcome;
    book.on_event(finished);
    ++end.counts.at(static_cast<std::size_t>(outcome));
  }
  end.duration_ms = 1500;
  book.on_event(end);
}

std::string complete(RoundBook& book, const Outcomes& outcomes) {
  tell(book, outcomes);
  return book.complete();
}

std::vector<std::string> order(const RoundBook& book, const std::vector<std::string>& ids) {
  std::vector<Item> cases;
  cases.reserve(ids.size());
  for (const std::string& id : ids) cases.push_back({.id = id, .payload = {}, .rerun = ""});
  std::vector<std::string> out;
  for (const Item& named : book.failures_first(std::move(cases))) out.push_back(named.id);
  return out;
}

TEST(RoundBook, TheFirstRoundHasNothingToCompareWith) {
  RoundBook book;
  EXPECT_THAT(order(book, {"a", "b"}), ElementsAre("a", "b"));
  EXPECT_EQ(complete(book, {{"a", CaseOutcome::pass}}), "1 passed in 1.50 s");
}

TEST(RoundBook, CountsFailuresPassesSkipsAndWhatNobodyJudged) {
  RoundBook book;
  EXPECT_EQ(complete(book, {{"a", CaseOutcome::fail},
                            {"b", CaseOutcome::crash},
                            {"c", CaseOutcome::pass},
                            {"d", CaseOutcome::skip},
                            {"e", CaseOutcome::not_run},
                            {"f", CaseOutcome::infra},
                            {"g", CaseOutcome::timeout}}),
            "3 failed, 1 passed, 1 skipped, 2 not judged in 1.50 s");
}

TEST(RoundBook, CountsApartWhatFailedAsExpectedAndAsFailedWhatHadToFail) {
  RoundBook book;
  book.begin();
  RunFinished end;
  end.counts.at(static_cast<std::size_t>(CaseOutcome::pass)) = 3;
  end.counts.at(static_cast<std::size_t>(CaseOutcome::fail)) = 2;
  end.expected_failures = 1;
  end.unexpected_passes = 2;
  end.strict_passes = 1;
  end.duration_ms = 1500;
  book.on_event(end);
  EXPECT_EQ(book.complete(), "2 failed, 2 passed, 1 failed as expected in 1.50 s");
}

TEST(RoundBook, TheNextRoundBeginsWithWhatFailedInItsOrder) {
  RoundBook book;
  complete(book,
           {{"a", CaseOutcome::pass}, {"b", CaseOutcome::error}, {"c", CaseOutcome::pass}, {"d", CaseOutcome::fail}});
  EXPECT_THAT(order(book, {"a", "b", "c", "d", "b"}), ElementsAre("b", "d", "b", "a", "c"));
}

TEST(RoundBook, SaysWhatWasFixedAndWhatIsNew) {
  RoundBook book;
  complete(book, {{"a", CaseOutcome::fail}, {"b", CaseOutcome::fail}, {"c", CaseOutcome::pass}});
  EXPECT_EQ(complete(book, {{"a", CaseOutcome::pass}, {"b", CaseOutcome::fail}, {"c", CaseOutcome::crash}}),
            "2 failed, 1 passed in 1.50 s (fixed: 1, new failures: 1)");
  EXPECT_THAT(order(book, {"a", "b", "c"}), ElementsAre("b", "c", "a"));
}

TEST(RoundBook, ACaseThatNobodyJudgedStaysWhatItWas) {
  RoundBook book;
  complete(book, {{"a", CaseOutcome::pass}, {"b", CaseOutcome::fail}});
  EXPECT_EQ(complete(book, {{"a", CaseOutcome::infra}, {"b", CaseOutcome::infra}}),
            "0 passed, 2 not judged in 1.50 s (fixed: 0, new failures: 0)");
  EXPECT_THAT(order(book, {"a", "b"}), ElementsAre("b", "a"));
  EXPECT_EQ(complete(book, {{"a", CaseOutcome::pass}, {"b", CaseOutcome::pass}}),
            "2 passed in 1.50 s (fixed: 1, new failures: 0)");
}

TEST(RoundBook, ARoundThatWasStoppedDecidesTheOrderAndIsNotComparedWith) {
  RoundBook book;
  complete(book, {{"a", CaseOutcome::pass}, {"b", CaseOutcome::fail}});
  tell(book, {{"b", CaseOutcome::pass}, {"a", CaseOutcome::fail}});
  book.stop();
  EXPECT_THAT(order(book, {"b", "a"}), ElementsAre("a", "b"));
  EXPECT_EQ(complete(book, {{"a", CaseOutcome::fail}, {"b", CaseOutcome::pass}}),
            "1 failed, 1 passed in 1.50 s (fixed: 1, new failures: 1)");
}

TEST(RoundBook, OfSeveralRunsOfACaseOneFailureCounts) {
  RoundBook book;
  complete(book, {{"a", CaseOutcome::fail}, {"a", CaseOutcome::pass}, {"b", CaseOutcome::pass}});
  EXPECT_THAT(order(book, {"b", "a"}), ElementsAre("a", "b"));
  EXPECT_EQ(complete(book, {{"a", CaseOutcome::pass}, {"a", CaseOutcome::fail}}),
            "1 failed, 1 passed in 1.50 s (fixed: 0, new failures: 0)");
}

TEST(RoundBook, ACaseThatIsSelectedNoMoreIsForgotten) {
  RoundBook book;
  complete(book, {{"a", CaseOutcome::fail}, {"b", CaseOutcome::pass}});
  complete(book, {{"b", CaseOutcome::pass}});
  EXPECT_EQ(complete(book, {{"a", CaseOutcome::pass}, {"b", CaseOutcome::pass}}),
            "2 passed in 1.50 s (fixed: 0, new failures: 0)");
}

}  // namespace
}  // namespace cp_pool
