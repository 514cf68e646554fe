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
  std::vector<int> groups;
  for (int rank = 0; rank < world_size(c); ++rank) groups.push_back(group_of_rank(c, rank));
  EXPECT_THAT(groups, testing::ElementsAre(0, 1, 0, 1, 0, 1));
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
