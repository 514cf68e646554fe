#include "cases/case_groups.h"

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_json.h"
#include "cases/lengths.h"

namespace cp_pool {
namespace {

Case two_groups() {
  Case c;
  c.cp_size = 3;
  c.group = 2;
  c.seqlen_q = c.seqlen_kv = 24;
  c.heads = c.kv_heads = 2;
  c.head_dim_qk = c.head_dim_v = 8;
  return c;
}

TEST(CaseGroups, HaveRanksThatAreNotConsecutive) {
  const Case c = two_groups();
  EXPECT_EQ(world_size(c), 6);
  EXPECT_THAT(division_of(c).groups, testing::ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(groups_of(division_of(c)), testing::ElementsAre(std::vector{0, 2, 4}, std::vector{1, 3, 5}));
}

TEST(CaseGroups, HaveTheRanksThatTheCaseLists) {
  Case c = two_groups();
  c.group_ranks = {{1, 2, 5}, {0, 3, 4}};
  const Division division = division_of(c);
  EXPECT_EQ(groups_of(division), *c.group_ranks);
  EXPECT_EQ(group_of_rank(division, 5), 0);
  EXPECT_EQ(rank_in_group(division, 5), 2);
  EXPECT_EQ(rank_in_group(division, 0), 0);
}

TEST(CaseGroups, MayDifferInRanksAndLengths) {
  Case c = two_groups();
  c.layout = Layout::thd;
  c.pad_between_seqs = true;
  c.seqlens = {3, 20};
  c.group_ranks = {{0, 2, 3}, {1}};
  c.group_lengths = {{3, 20}, {7}};
  ASSERT_EQ(find_problem(c), std::nullopt);
  EXPECT_EQ(world_size(c), 4);
  const Case second = case_of_group(c, 1);
  EXPECT_EQ(second.cp_size, 1);
  EXPECT_EQ(second.batch, 1);
  EXPECT_THAT(resolve_lengths(second).padded_q, testing::ElementsAre(8));
}

TEST(CaseGroups, HaveInputsOfTheirOwn) {
  Case c = two_groups();
  EXPECT_EQ(case_of_group(c, 0), c);
  Case second = c;
  second.seed = c.seed + 1;
  EXPECT_EQ(case_of_group(c, 1), second);
  c.seed = 18446744073709551615U;
  EXPECT_EQ(case_of_group(c, 1).seed, 0U);
}

TEST(CaseGroups, HaveTheLengthsOfTheCase) {
  for (const bool padded : {false, true}) {
    for (const std::int64_t keys : {24, 48}) {
      Case c = two_groups();
      c.layout = Layout::thd;
      c.pad_between_seqs = padded;
      c.batch = 8;
      c.seqlen_kv = keys;
      for (int group = 0; group < 2; ++group) {
        const Case own = case_of_group(c, group);
        EXPECT_EQ(resolve_lengths(own), resolve_lengths(c)) << padded << " " << keys << " " << group;
        EXPECT_FALSE(find_problem(own)) << padded << " " << keys << " " << group;
      }
      Case other = c;
      ++other.seed;
      EXPECT_NE(resolve_lengths(other), resolve_lengths(c));
    }
  }
}

TEST(CaseGroups, OneGroupIsTheCase) {
  Case c = two_groups();
  c.group = 1;
  EXPECT_TRUE(division_of(c).empty());
  EXPECT_EQ(group_of_rank({}, 2), 0);
  EXPECT_EQ(rank_in_group({}, 2), 2);
  c.layout = Layout::thd;
  EXPECT_EQ(case_of_group(c, 0), c);
  EXPECT_EQ(world_size(c), 3);
}

TEST(CaseGroups, HaveFilesOfTheirOwn) {
  EXPECT_EQ(group_suffix(0), "");
  EXPECT_EQ(group_suffix(1), ".group1");
}

}  // namespace
}  // namespace cp_pool
