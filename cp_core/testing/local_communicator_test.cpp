#include "cp_core/testing/local_communicator.h"

#include <atomic>
#include <thread>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/testing/ranks_on_threads.h"

namespace cp_pool {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

at::Tensor filled(std::int64_t size, double value) {
  return at::full({size}, value, at::kFloat);
}

// Runs with 1 to 8 ranks, since world sizes need not be powers of 2.
class LocalRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, LocalRanks, testing::Range(1, 9));

TEST_P(LocalRanks, ExchangeMessagesWithAllOthers) {
  run_ranks(GetParam(), [n = GetParam()](const CpGroups& groups, int rank) {
    std::vector<Communicator::Message> sends;
    std::vector<Communicator::Message> receives;
    for (int peer = 0; peer < n; ++peer) {
      if (peer == rank) continue;
      for (int i = 0; i <= rank; ++i) sends.push_back({.tensor = filled(i, 10 * rank + peer), .peer = peer});
      for (int i = 0; i <= peer; ++i) receives.push_back({.tensor = filled(i, -1), .peer = peer});
    }
    groups.cp->exchange_all(sends, receives, "all")->wait();
    for (const auto& [tensor, peer] : receives) EXPECT_TRUE(tensor.equal(filled(tensor.numel(), 10 * peer + rank)));
  });
}

TEST(LocalCommunicator, WritesTheReceiveTensorInWaitOnly) {
  run_ranks(2, [](const CpGroups& groups, int rank) {
    at::Tensor received = at::zeros({1}, at::kFloat);
    const auto work = groups.cp->exchange(filled(1, rank + 1), 1 - rank, received, 1 - rank, "turn");
    groups.cp->checked_barrier(0, 10s);  // after it, the peer has sent
    EXPECT_TRUE(received.equal(filled(1, 0)));
    work->wait();
    EXPECT_TRUE(received.equal(filled(1, 2 - rank)));
  });
}

TEST_P(LocalRanks, GatherScatterAndReduceInRankOrder) {
  run_ranks(GetParam(), [n = GetParam()](const CpGroups& groups, int rank) {
    at::Tensor gathered = at::zeros({n}, at::kFloat);
    groups.cp->all_gather(gathered, filled(1, rank), "gather")->wait();
    EXPECT_TRUE(gathered.equal(at::arange(n, at::kFloat)));

    at::Tensor part = at::zeros({1}, at::kFloat);
    groups.cp->reduce_scatter(part, at::arange(n, at::kFloat), "reduce")->wait();
    EXPECT_TRUE(part.equal(filled(1, n * rank)));

    at::Tensor largest = filled(1, rank == n - 1 ? 5 : -1);
    groups.cp->all_reduce(largest, ReduceOp::max, "largest")->wait();
    EXPECT_TRUE(largest.equal(filled(1, 5)));
  });
}

TEST(LocalCommunicator, NamesRankOperationPeerAndStepOfAWaitThatRunsOut) {
  const auto groups = make_local_groups(2);
  at::Tensor received = at::zeros({1}, at::kFloat);
  groups[0].cp->set_deadline(Communicator::Clock::now() + 1ms);
  try {
    groups[0].cp->exchange(received, 1, received, 1, "p2p forward step 2")->wait();
    FAIL() << "no CommError";
  } catch (const CommError& error) {
    EXPECT_EQ(error.kind(), CommError::Kind::timeout);
    EXPECT_THAT(error.what(),
                HasSubstr("rank 0 of 2: exchange (p2p forward step 2): timed out: no message from rank 1"));
  }
}

TEST(LocalCommunicator, SeesInTheBarrierThatARankHasDoneOneOperationMore) {
  const auto body = [](const CpGroups& groups, int rank) {
    at::Tensor value = at::zeros({1}, at::kFloat);
    if (rank == 1) static_cast<void>(groups.cp->all_reduce(value, ReduceOp::sum, "alone"));
    groups.cp->checked_barrier(7, 10s);
  };
  EXPECT_THROW(run_ranks(2, body), CommError);
}

TEST(SingleRank, MovesToItselfAndReducesNothing) {
  const CpGroups groups = single_rank_groups();
  EXPECT_EQ(groups.inner, nullptr);
  at::Tensor got = filled(2, 0);
  groups.cp->exchange(filled(2, 3), 0, got, 0, "turn")->wait();
  EXPECT_TRUE(got.equal(filled(2, 3)));
  groups.cp->all_gather(got, filled(2, 4), "gather")->wait();
  groups.cp->all_reduce(got, ReduceOp::max, "largest")->wait();
  EXPECT_TRUE(got.equal(filled(2, 4)));
  groups.cp->reduce_scatter(got, filled(2, 5), "reduce")->wait();
  EXPECT_TRUE(got.equal(filled(2, 5)));
  groups.cp->exchange_all({}, {}, "all")->wait();
}

TEST(RunRanks, FreesTheOthersAndRethrowsWhatARankThrew) {
  EXPECT_THROW(run_ranks(3,
                         [](const CpGroups& groups, int rank) {
                           if (rank == 1) throw std::logic_error("rank 1");
                           groups.cp->checked_barrier(0, 1min);
                         }),
               std::logic_error);
}

TEST(RunRanks, LetsOneRankAtATimeWorkIfAsked) {
  std::atomic<int> at_work = 0;
  const auto work = [&at_work](const CpGroups& groups, int rank) {
    for (int round = 0; round < 20; ++round) {
      EXPECT_EQ(at_work.fetch_add(1), 0);
      std::this_thread::sleep_for(100us);
      at_work.fetch_sub(1);
      at::Tensor received = at::zeros({2}, at::kFloat);
      groups.cp->exchange(filled(2, rank), (rank + 1) % 4, received, (rank + 3) % 4, "turn")->wait();
      EXPECT_TRUE(received.equal(filled(2, (rank + 3) % 4)));
    }
  };
  run_ranks(4, work, 1min, {}, /*one_at_a_time=*/true);
}

}  // namespace
}  // namespace cp_pool
