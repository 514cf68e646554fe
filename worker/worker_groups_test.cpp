// Tests of cases that several groups of real ranks run at once.
#include <set>

#include <gmock/gmock.h>

#include "worker/testing/worker_fixture.h"

namespace cp_pool::test {
namespace {

using protocol::ResultEvent;
using ::testing::HasSubstr;

using WorkerGroups = Worker;

const nlohmann::json kTwoGroups = {{"cp_size", 2}, {"group", 2}};
const nlohmann::json kAllRanks = {{"cp_size", 4}};

std::string hash_of_rank(const ResultEvent& result, int rank) {
  for (const auto& of : result.ranks) {
    if (of.rank == rank) return of.output_hash;
  }
  return "no such rank";
}

nlohmann::json merged(nlohmann::json fields, const nlohmann::json& more) {
  fields.update(more);
  return fields;
}

// Group g solves the problem with the seed 5 + g.
TEST_F(WorkerGroups, EachSolveAProblemOfTheirOwn) {
  const nlohmann::json fields = {{"layout", "thd"}, {"pad_between_seqs", true}, {"batch", 3}, {"seqlens", {3, 11, 16}}};
  ReadyGroup four({.ranks = 4});
  const std::vector<std::vector<std::vector<int>>> divisions{{{0, 2}, {1, 3}}, {{0, 1}, {2, 3}}, {{1, 2}, {0, 3}}};
  std::vector<ResultEvent> results;
  for (const auto& ranks : divisions) {
    results.push_back(four.run("both", merged(merged(fields, kTwoGroups), {{"seed", 5}, {"group_ranks", ranks}})));
    const auto& both = results.back();
    expect_pass(both);
    ASSERT_EQ(both.ranks.size(), 4U);
    std::set<int> checked;
    for (const Check& check : both.checks) checked.insert(check.rank);
    EXPECT_THAT(checked, ::testing::ElementsAre(0, 1, 2, 3));
  }

  ReadyGroup two({.ranks = 2});
  for (int group = 0; group < 2; ++group) {
    const auto alone = two.run("alone", merged(fields, {{"seed", 5 + group}}));
    expect_pass(alone);
    for (int rank = 0; rank < 2; ++rank) {
      for (std::size_t i = 0; i < divisions.size(); ++i) {
        const int in_world = divisions[i].at(static_cast<std::size_t>(group)).at(static_cast<std::size_t>(rank));
        EXPECT_EQ(hash_of_rank(results[i], in_world), hash_of_rank(alone, rank)) << i << " " << group << " " << rank;
      }
    }
  }
}

TEST_F(WorkerGroups, DifferInRanksAndLengths) {
  const nlohmann::json fields = {{"layout", "thd"}, {"pad_between_seqs", true}, {"batch", 2}, {"seqlens", {11, 16}}};
  const nlohmann::json groups = {
      {"cp_size", 2}, {"group", 2}, {"group_ranks", {{0, 2}, {1}}}, {"group_lengths", {{11, 16}, {5}}}, {"seed", 5}};
  ReadyGroup three({.ranks = 3});
  const auto both = three.run("both", merged(fields, groups));
  expect_pass(both);
  expect_pass(three.run("other ranks", merged(merged(fields, groups), {{"group_ranks", {{1, 2}, {0}}}})));

  ReadyGroup one({.ranks = 1});
  const auto alone = one.run("alone", merged(fields, {{"cp_size", 1}, {"batch", 1}, {"seqlens", {5}}, {"seed", 6}}));
  expect_pass(alone);
  EXPECT_EQ(hash_of_rank(both, 1), hash_of_rank(alone, 0));
}

TEST_F(WorkerGroups, ComeAndGoBetweenCasesOfAllRanks) {
  ReadyGroup group({.ranks = 4});
  for (int i = 0; i < 2; ++i) {
    expect_pass(group.run("all", kAllRanks));
    expect_pass(group.run("two", kTwoGroups));
    expect_pass(group.run("neighbours", merged(kTwoGroups, {{"group_ranks", {{0, 1}, {2, 3}}}})));
    expect_pass(group.run("four", {{"cp_size", 1}, {"group", 4}}));
  }
}

TEST_F(WorkerGroups, NameTheRankOfTheWorldWhoseAnswerIsWrong) {
  ReadyGroup group(with({"--inject", "wrong=dq@3:inside:wrong"}, 4));
  const auto result = group.run("wrong", kTwoGroups);
  EXPECT_EQ(result.outcome, CaseOutcome::fail);
  EXPECT_THAT(result.reason, ::testing::StartsWith("rank 3: dq: "));
  EXPECT_TRUE(result.healthy);
  for (const auto& rank : result.ranks) EXPECT_EQ(rank.ok, rank.rank != 3) << rank.rank;
  expect_pass(group.run("next", kTwoGroups));
}

// Returns whether the pool recovers. On a busy machine it may take longer than the worker allows, but not every time.
bool comes_back_after_a_throw(WorkerGroup& group) {
  EXPECT_EQ(group.run("before", kTwoGroups).outcome, CaseOutcome::pass);
  const auto result = group.run("throws", kTwoGroups);
  EXPECT_EQ(result.outcome, CaseOutcome::error);
  EXPECT_THAT(result.reason, HasSubstr("rank 2"));
  if (!result.healthy) return false;
  for (const auto& fields : {kTwoGroups, kAllRanks, kTwoGroups}) {
    const auto next = group.run("next", fields);
    EXPECT_EQ(next.outcome, CaseOutcome::pass) << next.reason;
  }
  return true;
}

// The other group has finished its part and waits at the barrier of all ranks.
TEST_F(WorkerGroups, FallTogetherWhenARankThrowsAndComeBack) {
  bool back = false;
  for (int i = 0; i < kTriesToRecover && !back; ++i) {
    ReadyGroup group(with({"--inject", "throw@2:inside:throws"}, 4));
    back = comes_back_after_a_throw(group);
  }
  EXPECT_TRUE(back);
}

}  // namespace
}  // namespace cp_pool::test
