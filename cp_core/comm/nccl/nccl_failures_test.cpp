#include <thread>

#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cp_core/comm/nccl/gpu_groups.h"
#include "cp_core/testing/gpu_communicators.h"

namespace cp_pool {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using Clock = Communicator::Clock;

class NcclFailures : public NcclRanks {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, NcclFailures, ranks_and_ways());

// Connects the ranks, so that the next operation waits on the device and not for connections.
void meet(const GpuRank& rank, const CpGroups& groups) {
  const Neighbours ring(rank);
  at::Tensor got = filled({1}, 0);
  groups.cp->exchange(filled({1}, 1), ring.next, got, ring.previous, "meet")->wait();
  groups.cp->synchronize("meet");
}

TEST_F(NcclPairAlone, ADeadlineEndsAWaitNamingRankOperationPeerAndStep) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    meet(rank, groups);
    if (rank.rank == 1) return rank.await("given up");
    groups.cp->set_deadline(Clock::now() + 300ms);
    at::Tensor got = filled({1 << 20}, 0);
    auto work = groups.cp->exchange(filled({1 << 20}, 0), 1, got, 1, "p2p step 3");
    work->wait();
    const auto error = error_of([&] { groups.cp->synchronize("p2p forward"); });
    rank.tell("given up");
    expect_error(error, CommError::Kind::timeout,
                 AllOf(HasSubstr("rank 0: exchange, p2p step 3: send to rank 1, receive from rank 1"),
                       HasSubstr("timed out"), HasSubstr("p2p forward")));
    const auto later = error_of([&] { work->wait(); });
    expect_error(later, CommError::Kind::aborted);
  });
}

TEST_F(NcclPair, ADeadlineEndsTheFirstOperationBetweenTwoRanksToo) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    if (rank.rank == 1) return rank.await("given up");
    groups.cp->set_deadline(Clock::now() + 300ms);
    at::Tensor got = filled({1 << 20}, 0);
    const auto error = error_of([&] {
      groups.cp->exchange(filled({1 << 20}, 0), 1, got, 1, "p2p step 0")->wait();
      groups.cp->synchronize("p2p forward");
    });
    rank.tell("given up");
    expect_error(error, CommError::Kind::timeout,
                 HasSubstr("rank 0: exchange, p2p step 0: send to rank 1, receive from rank 1"));
  });
}

TEST_F(NcclPairAlone, ABarrierThatMeetsAnotherOperationSaysWhoIsNotThere) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    meet(rank, groups);
    if (rank.rank == 1) {
      at::Tensor all = filled({4}, 0).to(at::kLong);
      groups.cp->all_gather(all, filled({2}, 1).to(at::kLong), "all_gather forward K")->wait();
      return rank.await("failed");
    }
    const auto error = error_of([&] { groups.cp->checked_barrier(5, kLongEnough); });
    rank.tell("failed");
    expect_error(error, CommError::Kind::failed,
                 HasSubstr("rank 0: barrier with tag 5: rank 1 has not reached the barrier"));
  });
}

TEST_F(NcclPairAlone, AnAbortFreesARankThatWaitsAndItsDevice) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    meet(rank, groups);
    if (rank.rank == 1) return rank.await("freed");
    at::Tensor got = filled({1 << 20}, 0);
    groups.cp->exchange(filled({1 << 20}, 0), 1, got, 1, "test")->wait();
    const auto start = Clock::now();
    std::jthread aborter([&] { groups.cp->abort(); });  // may come before or during the wait
    const auto error = error_of([&] { groups.cp->synchronize("test"); });
    const double freed_after = milliseconds_since(start);
    aborter.join();
    const double aborted_after = milliseconds_since(start);
    c10::cuda::device_synchronize();
    const double idle_after = milliseconds_since(start);
    rank.tell("freed");
    fmt::print(
        "[ figures  ] abort: host freed after {:.1f} ms, communicators gone after {:.0f} ms, device idle after "
        "{:.0f} ms\n",
        freed_after, aborted_after, idle_after);
    expect_error(error, CommError::Kind::aborted);
    EXPECT_LT(freed_after, kFreedMilliseconds);
    EXPECT_EQ(at::ones({10}, on_gpu()).sum().item<float>(), 10.0F);
  });
}

TEST_P(NcclFailures, AnAbortFailsEveryLaterOperationOfEveryGroup) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    const auto& any = groups.inner ? groups.inner : groups.cp;
    any->abort();
    any->abort();
    at::Tensor sum = filled({1}, 1);
    for (const auto& group : {groups.cp, groups.inner, groups.outer}) {
      if (!group) continue;
      const auto error = error_of([&] { group->all_reduce(sum, ReduceOp::sum, "test")->wait(); });
      expect_error(error, CommError::Kind::aborted);
      EXPECT_TRUE(error_of([&] { group->synchronize("test"); }));
      EXPECT_TRUE(error_of([&] { group->checked_barrier(1, kLongEnough); }));
    }
  });
}

TEST_P(NcclFailures, GroupsAreMadeAgainOnTheSameStoreAfterAnAbort) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    for (int generation = 0; generation < 3; ++generation) {
      const auto start = Clock::now();
      const CpGroups groups = rank.connect(fmt::format("gen/{}/", generation));
      const double connected = milliseconds_since(start);
      at::Tensor sum = filled({1}, 1);
      groups.cp->all_reduce(sum, ReduceOp::sum, "test")->wait();
      groups.cp->synchronize("test");
      const double reduced = milliseconds_since(start);
      EXPECT_EQ(sum.item<float>(), static_cast<float>(rank.size));
      const Neighbours ring(rank);
      at::Tensor got = filled({1 << 20}, -1);
      groups.cp->exchange(filled({1 << 20}, 10 * generation + rank.rank), ring.next, got, ring.previous, "test")
          ->wait();
      EXPECT_TRUE(got.eq(10 * generation + ring.previous).all().item<bool>()) << "generation " << generation;
      groups.cp->checked_barrier(generation, kLongEnough);
      const auto abort = Clock::now();
      groups.cp->abort();
      fmt::print(
          "[ figures  ] rank {} of {}: generation {} connected after {:.0f} ms, first all-reduce after {:.0f} ms, "
          "aborted in {:.0f} ms\n",
          rank.rank, rank.size, generation, connected, reduced, milliseconds_since(abort));
    }
  });
}

TEST_F(NcclPair, ARankThatDoesNotComeIsNamed) {
  on_gpu_ranks(2, [](const GpuRank& rank) {
    if (rank.rank == 1) return;
    const auto error = error_of([&] { (void)cuda_part<GpuGroups>().make(rank.store, "test/", 0, 2, 2s, rank.shares); });
    expect_error(error, CommError::Kind::timeout,
                 testing::MatchesRegex("rank 0: connecting 2 ranks .*: rank 1 did not connect in time"));
  });
}

TEST_F(NcclPair, WorkMayBeDroppedUnfinished) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    for (int i = 0; i < 50; ++i) {
      at::Tensor got = filled({1 << 16}, 0);
      (void)groups.cp->exchange(filled({1 << 16}, 0), 1 - rank.rank, got, 1 - rank.rank, "dropped");
    }
    groups.cp->checked_barrier(1, kLongEnough);
  });
}

// --- Barrier ---------------------------------------------------------------------------------------------------------

TEST_F(NcclPair, ABarrierNamesTheRankWhoseTagDiffers) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    const auto error = error_of([&] { groups.cp->checked_barrier(rank.rank == 1 ? 8 : 7, kLongEnough); });
    expect_error(error, CommError::Kind::failed,
                 HasSubstr("rank 1 is at tag 8 after 0 operations, but rank 0 at tag 7 after 0"));
  });
}

TEST_F(NcclPairAlone, ABarrierNamesTheRankThatDidMoreOperations) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    meet(rank, groups);
    groups.cp->checked_barrier(6, kLongEnough);
    at::Tensor got = filled({1 << 20}, 0);
    Communicator::WorkPtr unmatched;
    if (rank.rank == 1) unmatched = groups.cp->exchange(filled({1 << 20}, 0), 0, got, 0, "too much");
    const auto start = Clock::now();
    const auto error = error_of([&] { groups.cp->checked_barrier(7, kLongEnough); });
    EXPECT_LT(milliseconds_since(start), kFreedMilliseconds);
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("rank 1 is at tag 7 after 2 operations, but rank 0 at tag 7 after 1"));
  });
}

TEST_F(NcclPair, ABarrierNamesTheRankThatDidNotArrive) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    if (rank.rank == 1) return rank.await("given up");
    const auto error = error_of([&] { groups.cp->checked_barrier(7, 300ms); });
    rank.tell("given up");
    expect_error(error, CommError::Kind::timeout,
                 HasSubstr("rank 0: barrier with tag 7: receive from rank 1: timed out"));
  });
}

TEST_P(NcclFailures, ABarrierMayFollowAPassedDeadline) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    groups.cp->set_deadline(Clock::now() - 1s);
    groups.cp->checked_barrier(7, kLongEnough);
  });
}

}  // namespace
}  // namespace cp_pool
