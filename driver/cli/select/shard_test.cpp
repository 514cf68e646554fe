#include "driver/cli/select/shard.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>

namespace cp_pool {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(Shard, IsAPartOfAWhole) {
  const Shard shard = parse_shard("2/4").value();
  EXPECT_EQ(shard.index, 2U);
  EXPECT_EQ(shard.count, 4U);
  EXPECT_EQ(parse_shard("4/4").value().index, 4U);
  for (const char* text : {"0/4", "5/4", "0/0", "1/0", "4", "1/", "/4", "1/4/2", "-1/4", "+1/4", "1/4 ", "1.0/4", "",
                           "1/99999999999999999999"}) {
    EXPECT_FALSE(parse_shard(text)) << text;
  }
}

std::vector<std::size_t> dealt(const std::vector<MatrixCase>& cases, std::size_t shards) {
  std::vector<const MatrixCase*> pointers;
  for (const MatrixCase& c : cases) pointers.push_back(&c);
  return deal_out(pointers, shards);
}

// Returns cases as in Transformer Engine's matrices: models, dtypes, and the communication types for each of them.
std::vector<MatrixCase> matrix_of(int models) {
  std::vector<MatrixCase> cases;
  for (int model = 0; model < models; ++model) {
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      for (const CommType comm : {CommType::p2p, CommType::all_gather, CommType::a2a, CommType::a2a_p2p}) {
        MatrixCase& c = cases.emplace_back();
        c.c.suite = "te";
        c.c.model = std::to_string(model);
        c.c.dtype = dtype;
        c.c.comm = comm;
        c.c.cp_size = comm == CommType::a2a_p2p ? 4 : 2;
        c.c.batch = 2;
        c.c.seqlen_q = c.c.seqlen_kv = 4096;
        c.c.heads = model == 0 ? 128 : 12;
        c.c.head_dim_qk = c.c.head_dim_v = 128;
      }
    }
  }
  return cases;
}

TEST(DealOut, CasesOfOneModelAndDtypeStayTogether) {
  const std::vector<MatrixCase> cases = matrix_of(12);
  const std::vector<std::size_t> shards = dealt(cases, 4);
  for (std::size_t i = 0; i < cases.size(); i += 4) {
    EXPECT_THAT(std::vector(shards.begin() + static_cast<std::ptrdiff_t>(i),
                            shards.begin() + static_cast<std::ptrdiff_t>(i) + 4),
                Each(shards[i]));
  }
  EXPECT_EQ(std::set(shards.begin(), shards.end()), (std::set<std::size_t>{0, 1, 2, 3}));
}

TEST(DealOut, ADearModelIsNotJoinedByAsManyOthers) {
  const std::vector<MatrixCase> cases = matrix_of(12);
  const std::vector<std::size_t> shards = dealt(cases, 2);
  // Each of the two dtypes of model 0 costs as much as ten of the others, so each shard gets one of them.
  EXPECT_NE(shards[0], shards[4]);
  EXPECT_EQ(std::ranges::count(shards, 0U), std::ranges::count(shards, 1U));
}

TEST(DealOut, AModelThatCostsMoreThanAShardIsSplit) {
  const std::vector<MatrixCase> cases = matrix_of(40);
  constexpr std::size_t kShards = 20;
  const std::vector<std::size_t> shards = dealt(cases, kShards);
  // Each dtype of model 0 costs about ten of the others, and a shard's part is about five.
  EXPECT_GT(std::set(shards.begin(), shards.begin() + 4).size(), 1U);
  EXPECT_EQ(std::set(shards.begin() + 8, shards.begin() + 12).size(), 1U) << "that of model 1 is not";
}

TEST(DealOut, OfFewModelsEachCaseIsDealtOutByItself) {
  const std::vector<MatrixCase> cases = matrix_of(1);
  const std::vector<std::size_t> shards = dealt(cases, 4);
  std::map<std::size_t, std::multiset<int>> ranks;
  for (std::size_t i = 0; i < cases.size(); ++i) ranks[shards[i]].insert(cases[i].c.cp_size);
  ASSERT_EQ(ranks.size(), 4U);
  std::vector<std::size_t> sizes;
  for (const auto& [shard, of_shard] : ranks) sizes.push_back(of_shard.size());
  EXPECT_THAT(sizes, ElementsAre(2, 2, 2, 2));
  // A case of four ranks costs more, so no shard gets two of them.
  for (const auto& [shard, of_shard] : ranks) EXPECT_LE(of_shard.count(4), 1U) << shard;
}

TEST(DealOut, RecordedTimesCountMoreThanTheEstimate) {
  std::vector<MatrixCase> cases = matrix_of(1);
  CaseTimes times;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    cases[i].id = std::to_string(i);
    times.ms[cases[i].id] = i == 3 ? 700 : 100;
  }
  std::vector<const MatrixCase*> pointers;
  for (const MatrixCase& c : cases) pointers.push_back(&c);
  const std::vector<std::size_t> shards = deal_out(pointers, 2, times);
  EXPECT_EQ(std::ranges::count(shards, shards[3]), 1) << "it takes as long as all others";
  times.ms.erase("3");  // now its estimate counts, on the scale of the others
  const std::vector<std::size_t> guessed = deal_out(pointers, 2, times);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(guessed, 0U)), 4, 1);
}

TEST(DealOut, MoreShardsThanCasesLeaveSomeEmpty) {
  EXPECT_THAT(dealt(matrix_of(1), 1000000000000000), ::testing::SizeIs(8));
  EXPECT_THAT(dealt({}, 3), ::testing::IsEmpty());
}

}  // namespace
}  // namespace cp_pool
