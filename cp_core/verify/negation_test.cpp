#include "cp_core/verify/negation.h"

#include <limits>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool::verify {
namespace {

using testing::IsEmpty;

// Rank 0 of 2, of one sequence with 6 valid tokens, padded to 8: two rows are valid, and two are padding.
RankView view_of(bool judges_padding) {
  Case c;
  c.layout = Layout::thd;
  c.batch = 1;
  c.seqlen_q = c.seqlen_kv = 6;
  const SequenceLengths lengths{.valid_q = {6}, .padded_q = {8}, .valid_kv = {6}, .padded_kv = {8}};
  Sharding sharding;
  sharding.judges_padding = judges_padding;
  return {c, lengths, sharding, 0, 2};
}

// 4 rows, 3 heads, dimension 2.
Results results_of_ones() {
  Results results;
  for (const auto member : {&Results::out, &Results::dq, &Results::dk, &Results::dv}) {
    results.*member = at::full({4, 3, 2}, 1.0, at::kFloat);
  }
  results.lse = at::full({3, 4}, 1.0, at::kFloat);
  results.max_logit = at::full({3}, 1.0, at::kFloat);
  return results;
}

Results clones(const Results& results) {
  Results copy;
  for (const auto& [name, result] : kResults) {
    if ((results.*result).defined()) copy.*result = (results.*result).clone();
  }
  return copy;
}

std::vector<std::string> texts(const std::vector<Difference>& differences) {
  std::vector<std::string> all;
  for (const Difference& difference : differences) all.push_back(difference.text);
  return all;
}

TEST(Differences, AreByValue) {
  const RankView view = view_of(true);
  Results first = results_of_ones();
  first.out[0][0].fill_(0.0);
  first.out[1][0][1].fill_(std::numeric_limits<double>::quiet_NaN());
  Results again = clones(first);
  again.out[0][0].fill_(-0.0);
  EXPECT_THAT(differences(view, first, again), IsEmpty());
  again.out[1][0][0].fill_(2.0);
  EXPECT_THAT(texts(differences(view, first, again)), testing::ElementsAre("out in 1 of 12 rows"));
}

TEST(Differences, NameEachResultThatDiffers) {
  const RankView view = view_of(true);
  const Results first = results_of_ones();
  Results again = clones(first);
  again.lse[2][1].add_(1.0);
  again.lse[0][1].add_(1.0);
  again.max_logit[0].add_(1.0);
  again.dk[1][2][0].add_(1.0);
  again.dv = again.dv.to(at::kDouble);
  again.dq = at::Tensor();
  EXPECT_THAT(texts(differences(view, first, again)),
              testing::ElementsAre("lse in 2 of 12 rows", "max_logit in 1 of 3 rows", "dq of another shape",
                                   "dk in 1 of 12 rows", "dv of another shape"));
}

TEST(Differences, CountTheRowsThatTheNegationHasNotReached) {
  const RankView view = view_of(true);
  Results first = results_of_ones();
  first.dk[2].fill_(0.0);
  Results again = clones(first);
  negate(again);
  again.dk[1][1].fill_(3.0);
  again.out = first.out;
  const std::vector<Difference> found = differences(view, first, again);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].text, "dq in 12 of 12 rows");
  EXPECT_EQ(found[0].earlier, 12);
  EXPECT_EQ(found[1].text, "dk in 9 of 12 rows");
  EXPECT_EQ(found[1].earlier, 8);
  EXPECT_EQ(found[2].tensor, "dv");
}

TEST(Differences, InPaddingCountOnlyWhereItIsJudged) {
  const Results first = results_of_ones();
  Results again = clones(first);
  again.dk[3].fill_(7.0);
  again.dq[2].fill_(7.0);
  again.lse.select(1, 3).fill_(7.0);
  EXPECT_THAT(differences(view_of(false), first, again), IsEmpty());
  EXPECT_THAT(texts(differences(view_of(true), first, again)),
              testing::ElementsAre("lse in 3 of 12 rows", "dq in 3 of 12 rows", "dk in 3 of 12 rows"));
}

TEST(Negate, ReachesTheInputsThatResultsAreOddIn) {
  Shards shards;
  for (const auto member : {&Shards::q, &Shards::k, &Shards::v, &Shards::dout, &Shards::bias, &Shards::sink}) {
    shards.*member = at::full({2}, 1.0, at::kFloat);
  }
  const at::Tensor q = shards.q;
  negate(shards);
  for (const auto member : {&Shards::q, &Shards::k, &Shards::v, &Shards::dout}) {
    EXPECT_TRUE((shards.*member).eq(-1).all().item<bool>());
  }
  EXPECT_TRUE(shards.bias.eq(1).all().item<bool>());
  EXPECT_TRUE(shards.sink.eq(1).all().item<bool>());
  EXPECT_TRUE(q.is_same(shards.q)) << "in place";
}

}  // namespace
}  // namespace cp_pool::verify
