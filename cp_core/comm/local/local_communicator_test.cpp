#include "cp_core/comm/local/local_communicator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
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
using testing::AllOf;
using testing::HasSubstr;

at::Tensor filled(std::int64_t size, double value) {
  return at::full({size}, value, at::kFloat);
}

// Runs with 1 to 8 ranks, since world sizes need not be powers of 2.
class LocalRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, LocalRanks, testing::Range(1, 9));

TEST_P(LocalRanks, ExchangeInARing) {
  run_ranks(GetParam(), [n = GetParam()](const CpGroups& groups, int rank) {
    at::Tensor received = at::zeros({2}, at::kFloat);
    groups.cp->exchange(filled(2, rank), (rank + 1) % n, received, (rank + n - 1) % n, "turn")->wait();
    EXPECT_TRUE(received.equal(filled(2, (rank + n - 1) % n)));
  });
}

TEST(LocalCommunicator, ExchangesSeveralTensorsAsOneMessage) {
  run_ranks(3, [](const CpGroups& groups, int rank) {
    const std::array sends{filled(2, rank), filled(0, 0), at::full({3}, rank + 10, at::kBFloat16)};
    const std::array receives{at::zeros({2}, at::kFloat), filled(0, 0), at::zeros({3}, at::kBFloat16)};
    groups.cp->exchange_many(sends, (rank + 1) % 3, receives, (rank + 2) % 3, "turn")->wait();
    EXPECT_TRUE(receives[0].equal(filled(2, (rank + 2) % 3)));
    EXPECT_TRUE(receives[2].equal(at::full({3}, (rank + 2) % 3 + 10, at::kBFloat16)));
  });
}

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

TEST(LocalCommunicator, CarriesTensorsWithoutElements) {
  run_ranks(2, [](const CpGroups& groups, int rank) {
    at::Tensor received = at::zeros({0}, at::kFloat);
    groups.cp->exchange(at::zeros({0}, at::kFloat), 1 - rank, received, 1 - rank, "nothing")->wait();
  });
}

class LocalPairs : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, LocalPairs, testing::Values(4, 6, 8));

TEST_P(LocalPairs, AreOfNeighboursAndRingsOfEqualParity) {
  run_ranks(GetParam(), [n = GetParam()](const CpGroups& groups, int rank) {
    at::Tensor pair = at::zeros({2}, at::kFloat);
    groups.inner->all_gather(pair, filled(1, rank), "pair")->wait();
    EXPECT_TRUE(pair.equal(at::arange(rank - rank % 2, rank - rank % 2 + 2, at::kFloat)));
    at::Tensor ring = at::zeros({n / 2}, at::kFloat);
    groups.outer->all_gather(ring, filled(1, rank), "ring")->wait();
    EXPECT_TRUE(ring.equal(at::arange(rank % 2, rank % 2 + n, 2, at::kFloat)));
  });
}

TEST(LocalGroups, HaveNoPairsOfAnOddNumberOfRanksOrOfFewerThanFour) {
  for (const int ranks : {1, 2, 3, 5, 7}) EXPECT_EQ(make_local_groups(ranks)[0].inner, nullptr) << ranks;
}

TEST(LocalCommunicator, KeepsTheMessagesOfGroupsApartWhileTheirOperationsOverlap) {
  const auto body = [](const CpGroups& groups, int rank) {
    // Peers begin the operations of their groups in different orders.
    std::array order{groups.cp.get(), groups.inner.get(), groups.outer.get()};
    std::ranges::rotate(order, order.begin() + rank % 3);
    std::vector<Communicator::WorkPtr> works;
    std::vector<std::pair<at::Tensor, at::Tensor>> gathered;  // received and expected values
    for (Communicator* group : order) {
      const double first = group == groups.cp.get() ? 100 : group == groups.inner.get() ? 200 : 300;
      at::Tensor got = filled(group->size(), -1);
      works.push_back(group->all_gather(got, filled(1, first + group->rank()), "overlapping"));
      gathered.emplace_back(got, at::arange(group->size(), at::kFloat).add(first));
    }
    for (const auto& work : works) work->wait();
    for (const auto& [got, expected] : gathered) EXPECT_TRUE(got.equal(expected)) << got;
  };
  run_ranks(4, body, 20s);  // a rank whose message another group took would wait for ever
}

// Returns the error that fn throws on rank 0, while rank 1 does nothing.
template <typename Fn>
CommError comm_error_of_rank_0(Fn fn) {
  const auto groups = make_local_groups(2);
  try {
    fn(*groups[0].cp);
  } catch (const CommError& error) {
    return error;
  }
  ADD_FAILURE() << "no CommError";
  return {CommError::Kind::failed, ""};
}

TEST(LocalCommunicator, NamesRankOperationPeerAndStepOfAWaitThatRunsOut) {
  const CommError error = comm_error_of_rank_0([](Communicator& cp) {
    at::Tensor received = at::zeros({1}, at::kFloat);
    cp.set_deadline(Communicator::Clock::now() + 1ms);
    cp.exchange(received, 1, received, 1, "p2p forward step 2")->wait();
  });
  EXPECT_EQ(error.kind(), CommError::Kind::timeout);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0"), HasSubstr("exchange"), HasSubstr("p2p forward step 2"),
                                  HasSubstr("from rank 1")));
}

TEST(LocalCommunicator, RefusesSeveralTensorsOfAnotherSizeThanWasSent) {
  EXPECT_THROW(run_ranks(2,
                         [](const CpGroups& groups, int rank) {
                           const std::array sends{filled(2, rank), filled(1 + rank, rank)};
                           const std::array receives{filled(2, 0), filled(1 + rank, 0)};
                           groups.cp->exchange_many(sends, 1 - rank, receives, 1 - rank, "turn")->wait();
                         }),
               CommError);
}

TEST(LocalCommunicator, BoundsTheBarrierAndNamesTheRankThatStaysAway) {
  const CommError error = comm_error_of_rank_0([](Communicator& cp) { cp.checked_barrier(7, 1ms); });
  EXPECT_EQ(error.kind(), CommError::Kind::timeout);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("checked_barrier"), HasSubstr("from rank 1")));
}

TEST(LocalCommunicator, SeesInTheBarrierThatARankHasDoneOneOperationMore) {
  try {
    run_ranks(2, [](const CpGroups& groups, int rank) {
      at::Tensor value = at::zeros({1}, at::kFloat);
      if (rank == 1) static_cast<void>(groups.cp->all_reduce(value, ReduceOp::sum, "alone"));
      groups.cp->checked_barrier(7, 10s);
    });
    FAIL() << "no CommError";
  } catch (const CommError& error) {
    EXPECT_EQ(error.kind(), CommError::Kind::failed);
    EXPECT_THAT(error.what(), HasSubstr("tag or operation count of rank 1 differs from rank 0's"));
  }
}

TEST(LocalCommunicator, FailsEveryOperationOnceAborted) {
  const CommError error = comm_error_of_rank_0([](Communicator& cp) {
    at::Tensor received = at::zeros({1}, at::kFloat);
    const auto work = cp.exchange(received, 1, received, 1, "step");
    cp.abort();
    cp.abort();
    work->wait();
  });
  EXPECT_EQ(error.kind(), CommError::Kind::aborted);
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
