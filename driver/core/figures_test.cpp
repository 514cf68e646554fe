#include "driver/core/figures.h"

#include <limits>
#include <ostream>

#include <gmock/gmock.h>

#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using protocol::ResultEvent;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kRanks = 3;

Check check_of(int rank) {
  Check check;
  check.tensor = "dq";
  check.rank = rank;
  check.error = 0.5;
  check.bound = 1;
  return check;
}

ResultEvent good_pass() {
  ResultEvent result;
  result.outcome = CaseOutcome::pass;
  for (int rank = 0; rank < kRanks; ++rank) {
    result.ranks.push_back({{}, rank});
    result.checks.push_back(check_of(rank));
  }
  return result;
}

struct Flaw {
  const char* name;
  void (*add)(ResultEvent& result);
  const char* reason;  // part of the expected reason
};
// NOLINTNEXTLINE(readability-identifier-naming): found by its name
void PrintTo(const Flaw& flaw, std::ostream* out) {
  *out << flaw.name;
}

const std::vector<Flaw> kFlaws{
    {"ErrorBeyondItsBound", [](ResultEvent& r) { r.checks[1].error = 1.5; }, "dq of rank 1 has error 1.5 > bound 1"},
    {"ErrorAHairBeyondItsBound", [](ResultEvent& r) { r.checks[1].error = 1.0000000001; },
     "error 1.0000000001 > bound 1"},
    {"ErrorIsNoNumber", [](ResultEvent& r) { r.checks[2].error = kNaN; }, "dq of rank 2 has error nan"},
    {"ErrorIsInfinite", [](ResultEvent& r) { r.checks[2].error = kInfinity; }, "error inf"},
    {"ErrorAndBoundAreInfinite", [](ResultEvent& r) { r.checks[2].error = r.checks[2].bound = kInfinity; },
     "error inf"},
    {"ErrorIsNegative", [](ResultEvent& r) { r.checks[2].error = -0.5; }, "error -0.5"},
    {"BoundIsNoNumber", [](ResultEvent& r) { r.checks[0].bound = kNaN; }, "dq of rank 0 has bound nan"},
    {"BoundIsInfinite", [](ResultEvent& r) { r.checks[0].bound = kInfinity; }, "bound inf"},
    {"LargestDifferenceIsNoNumber", [](ResultEvent& r) { r.checks[0].max_abs = kNaN; }, "max_abs nan"},
    {"MeanDifferenceIsInfinite", [](ResultEvent& r) { r.checks[0].rms = kInfinity; }, "rms inf"},
    {"ACheckIsNotOk", [](ResultEvent& r) { r.checks[1].ok = false; }, "though dq of rank 1 is not ok"},
    {"ARankIsNotOk", [](ResultEvent& r) { r.ranks[1].ok = false; }, "though rank 1 is not ok"},
    {"RanksLackOne", [](ResultEvent& r) { r.ranks.erase(r.ranks.begin() + 1); }, "ranks lack rank 1 of 3"},
    {"RanksLackTwo", [](ResultEvent& r) { r.ranks.resize(1); }, "ranks lack ranks 1, 2 of 3"},
};

class RefutedPass : public testing::TestWithParam<Flaw> {};

TEST_P(RefutedPass, HasItsReasonWhetherFiguresWerePromisedOrNot) {
  for (const bool promised : {false, true}) {
    ResultEvent result = good_pass();
    EXPECT_THAT(refutation_of_pass(result, kRanks, promised), IsEmpty());
    GetParam().add(result);
    EXPECT_THAT(refutation_of_pass(result, kRanks, promised), HasSubstr(GetParam().reason));
  }
}

INSTANTIATE_TEST_SUITE_P(Table, RefutedPass, testing::ValuesIn(kFlaws),
                         [](const auto& info) { return info.param.name; });

TEST(Figures, ThatWerePromisedAreOwedOfEveryRank) {
  ResultEvent result = good_pass();
  result.checks.erase(result.checks.begin() + 1);
  EXPECT_THAT(refutation_of_pass(result, kRanks, false), IsEmpty());
  EXPECT_THAT(refutation_of_pass(result, kRanks, true), HasSubstr("without a check of rank 1"));
  result.checks.clear();
  EXPECT_THAT(refutation_of_pass(result, kRanks, true), HasSubstr("without a check of ranks 0-2"));
}

TEST(Figures, ThatWerePromisedAreOwedInEveryCheck) {
  ResultEvent result = good_pass();
  result.checks.push_back(check_of(2));
  result.checks.back().tensor = "dk";
  result.checks.back().measured = false;
  EXPECT_THAT(refutation_of_pass(result, kRanks, false), IsEmpty());
  EXPECT_THAT(refutation_of_pass(result, kRanks, true), HasSubstr("without error and bound of dk of rank 2"));
}

TEST(Figures, ThatAreZeroSpeakAgainstNothing) {  // as for a rank that has no rows of a tensor
  ResultEvent result = good_pass();
  for (Check& check : result.checks) check.error = check.bound = 0;
  EXPECT_THAT(refutation_of_pass(result, kRanks, true), IsEmpty());
}

TEST(Figures, OfAnEmptyListOfRanksLackNone) {
  ResultEvent result = good_pass();
  result.ranks.clear();
  EXPECT_THAT(refutation_of_pass(result, kRanks, true), IsEmpty());
}

TEST(Figures, CorrectTheVerdictOfTheirCheckAlone) {
  ResultEvent result = good_pass();
  result.checks[1].error = 2;
  result.checks[1].message = "worst at the end";
  correct_checks(result);
  EXPECT_TRUE(result.checks[0].ok);
  EXPECT_FALSE(result.checks[1].ok);
  EXPECT_EQ(result.checks[1].message, "worst at the end (the worker calls it ok)");
}

TEST(Ratio, IsNeverNoNumber) {
  const auto ratio = [](double error, double bound) {
    Check check;
    check.error = error;
    check.bound = bound;
    return ratio_text(check);
  };
  EXPECT_EQ(ratio(1, 4), "0.25");
  EXPECT_EQ(ratio(0, 0), "0.00");
  EXPECT_EQ(ratio(1, 0), "inf");
  EXPECT_EQ(ratio(kInfinity, 1), "inf");
  for (const auto& [error, bound] : {std::pair{kNaN, 1.0},
                                     {1.0, kNaN},
                                     {kInfinity, kInfinity},
                                     {1.0, kInfinity},
                                     {0.0, kNaN},
                                     {kNaN, 0.0},
                                     {-1.0, 1.0},
                                     {1.0, -1.0}}) {
    EXPECT_EQ(ratio(error, bound), "-") << error << " / " << bound;
  }
  Check unmeasured;
  unmeasured.measured = false;
  EXPECT_EQ(ratio_text(unmeasured), "-");
}

TEST(UnverifiedByFigures, IsAPassOfWhichSomeRankGaveNone) {
  CaseFinished event;
  test::attention(event.payload).cp_size = 2;
  event.outcome = CaseOutcome::pass;
  EXPECT_TRUE(is_unverified_by_figures(event));
  event.checks = {check_of(0)};
  EXPECT_TRUE(is_unverified_by_figures(event));
  event.checks.push_back(check_of(1));
  EXPECT_FALSE(is_unverified_by_figures(event));
  event.checks.back().measured = false;
  EXPECT_TRUE(is_unverified_by_figures(event));
  event.outcome = CaseOutcome::fail;
  EXPECT_FALSE(is_unverified_by_figures(event));
}

// A pass of 4096 tokens.
CaseFinished pass_with(const std::vector<std::int64_t>& pairs) {
  CaseFinished event = test::finished(0, "id", CaseOutcome::pass);
  test::attention(event.payload).batch = 2;
  test::attention(event.payload).seqlen_q = 2048;
  test::attention(event.payload).seqlen_kv = 2048;
  test::attention(event.payload).cp_size = static_cast<int>(pairs.size());
  for (std::size_t rank = 0; rank < pairs.size(); ++rank) {
    event.ranks.insert(event.ranks.begin(), {{.pairs = pairs[rank]}, static_cast<int>(rank)});
  }
  return event;
}

TEST(LargestShare, IsAMultipleOfTheMean) {
  const LargestShare share = largest_share({10, 26, 42, 58}).value();
  EXPECT_EQ(share.rank, 3);
  EXPECT_DOUBLE_EQ(share.of_mean, 58.0 / 34);
  EXPECT_EQ(share.text(), "rank 3 computes 1.71 x the mean of the ranks");
  EXPECT_EQ(largest_share({7}).value().of_mean, 1);
  EXPECT_FALSE(largest_share({0, 0}));
  EXPECT_FALSE(largest_share({}));
}

TEST(UnevenShare, IsAboveOneAndAHalfOfTheMean) {
  EXPECT_FALSE(uneven_share(pass_with({10, 10, 20})));
  const auto share = uneven_share(pass_with({10, 10, 21}));
  ASSERT_TRUE(share);
  EXPECT_EQ(share->rank, 2);
}

TEST(UnevenShare, IsOfLargeCasesThatPassed) {
  CaseFinished event = pass_with({0, 0, 1});
  EXPECT_TRUE(uneven_share(event));
  event.outcome = CaseOutcome::fail;
  EXPECT_FALSE(uneven_share(event));
  event = pass_with({0, 0, 1});
  test::attention(event.payload).seqlen_q -= 8;
  EXPECT_FALSE(uneven_share(event));
}

TEST(UnevenShare, IsUnknownUnlessEveryRankCounts) {
  CaseFinished event = pass_with({0, 0, 1});
  event.ranks[0].pairs.reset();
  EXPECT_FALSE(uneven_share(event));
  event = pass_with({0, 0, 1});
  event.ranks[0].rank = 7;
  EXPECT_FALSE(uneven_share(event));
  event.ranks.clear();
  EXPECT_FALSE(uneven_share(event));
}

TEST(RankNames, JoinThreeAndMoreThatFollowEachOther) {
  EXPECT_EQ(name_ranks({3}), "rank 3");
  EXPECT_EQ(name_ranks({1, 0}), "ranks 0, 1");
  EXPECT_EQ(name_ranks({0, 2, 1}), "ranks 0-2");
  EXPECT_EQ(name_ranks({9, 0, 1, 2, 3, 4, 5, 6, 12, 13}), "ranks 0-6, 9, 12, 13");
}

TEST(RankNames, HaveACharacterForEachRankOfACase) {
  EXPECT_EQ(rank_letter(0), '0');
  EXPECT_EQ(rank_letter(10), 'a');
  EXPECT_EQ(rank_letter(61), 'Z');
  EXPECT_EQ(rank_letter(63), '&');
  EXPECT_EQ(rank_letter(64), '?');
  EXPECT_EQ(rank_letter(-1), '?');
}

}  // namespace
}  // namespace cp_pool
