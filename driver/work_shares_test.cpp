#include "driver/work_shares.h"

#include <gtest/gtest.h>

#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

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

}  // namespace
}  // namespace cp_pool
