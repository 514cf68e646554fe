#include "cp_core/comm/nccl_communicator.h"

#include <cstdlib>
#include <optional>
#include <random>
#include <thread>

#include <ATen/Functions.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/cuda/gpu_ranks.h"
#include "cp_core/cuda/gpu_test.h"
#include "cp_core/thd/merge_partial.h"

namespace cp_pool {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using Clock = Communicator::Clock;

constexpr auto kLongEnough = 20s;
// From an abort to the end of the wait.
constexpr double kFreedMilliseconds = 2000;

at::TensorOptions on_gpu(at::ScalarType dtype = at::kFloat) {
  return at::TensorOptions().dtype(dtype).device(at::kCUDA, c10::cuda::current_device());
}

at::Tensor filled(at::IntArrayRef shape, double value, at::ScalarType dtype = at::kFloat) {
  return at::full(shape, value, on_gpu(dtype));
}

std::optional<CommError> error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const CommError& error) {
    return error;
  }
  return std::nullopt;
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Runs on as many GPUs as its parameter says.
class NcclRanks : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { require_gpus(GetParam(), count_gpus()); }
};
INSTANTIATE_TEST_SUITE_P(WorldSizes, NcclRanks, testing::Values(1, 2, 4));

// Runs on two GPUs.
class NcclPair : public testing::Test {
 protected:
  void SetUp() override { require_gpus(2, count_gpus()); }
};

class NcclFour : public testing::Test {
 protected:
  void SetUp() override { require_gpus(4, count_gpus()); }
};

// --- Operations ------------------------------------------------------------------------------------------------------

struct Ring {
  explicit Ring(const GpuRank& rank)
      : next((rank.rank + 1) % rank.size), previous((rank.rank + rank.size - 1) % rank.size) {}
  int next;
  int previous;
};

TEST_P(NcclRanks, ExchangeAllGatherAndAllToAllMoveAnyDtype) {
  on_gpu_ranks(GetParam(), [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    const Ring ring(rank);
    const int n = rank.size;
    EXPECT_EQ(groups.cp->rank(), rank.rank);
    EXPECT_EQ(groups.cp->size(), n);
    for (const auto dtype :
         {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kInt, at::kLong, at::kByte, at::kBool}) {
      SCOPED_TRACE(fmt::format("rank {}, {}", rank.rank, c10::toString(dtype)));
      at::Tensor got = filled({3 + ring.previous, 2}, 0, dtype);
      groups.cp->exchange(filled({3 + rank.rank, 2}, rank.rank, dtype), ring.next, got, ring.previous, "test")->wait();
      EXPECT_TRUE(at::equal(got, filled({3 + ring.previous, 2}, ring.previous, dtype)));

      const at::Tensor numbers = at::arange(n, on_gpu());
      at::Tensor gathered = filled({n, 5}, 0, dtype);
      groups.cp->all_gather(gathered, filled({1, 5}, rank.rank, dtype), "test")->wait();
      EXPECT_TRUE(at::equal(gathered, numbers.view({n, 1}).expand({n, 5}).to(dtype)));

      at::Tensor swapped = filled({n, 3}, 0, dtype);
      const at::Tensor parts = numbers.add(10 * rank.rank).view({n, 1}).expand({n, 3}).to(dtype).contiguous();
      groups.cp->all_to_all(swapped, parts, "test")->wait();
      EXPECT_TRUE(at::equal(swapped, numbers.mul(10).add(rank.rank).view({n, 1}).expand({n, 3}).to(dtype)));
    }
    groups.cp->synchronize("test");
  });
}

TEST_P(NcclRanks, ReduceScatterAndAllReduceSumAndFindTheLargest) {
  on_gpu_ranks(GetParam(), [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    const int n = rank.size;
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kInt, at::kLong}) {
      SCOPED_TRACE(fmt::format("rank {}, {}", rank.rank, c10::toString(dtype)));
      at::Tensor part = filled({1, 3}, -1, dtype);
      const at::Tensor all = at::arange(n, on_gpu()).view({n, 1}).expand({n, 3}).mul(rank.rank + 1).to(dtype);
      groups.cp->reduce_scatter(part, all.contiguous(), "test")->wait();
      EXPECT_TRUE(at::equal(part, filled({1, 3}, rank.rank * n * (n + 1) / 2.0, dtype)));

      at::Tensor sum = filled({3}, rank.rank, dtype);
      groups.cp->all_reduce(sum, ReduceOp::sum, "test")->wait();
      EXPECT_TRUE(at::equal(sum, filled({3}, n * (n - 1) / 2.0, dtype)));

      at::Tensor largest = at::tensor({-1.0 * rank.rank, 1.0 * rank.rank}, on_gpu()).to(dtype);
      groups.cp->all_reduce(largest, ReduceOp::max, "test")->wait();
      EXPECT_TRUE(at::equal(largest, at::tensor({0.0, n - 1.0}, on_gpu()).to(dtype)));
    }
    at::Tensor any = filled({2}, rank.rank == n - 1 ? 1 : 0, at::kBool);
    groups.cp->all_reduce(any, ReduceOp::sum, "test")->wait();
    EXPECT_TRUE(at::equal(any, filled({2}, 1, at::kBool)));
    groups.cp->synchronize("test");
  });
}

TEST_P(NcclRanks, ZeroRowsAreCarried) {
  on_gpu_ranks(GetParam(), [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    const Ring ring(rank);
    const at::Tensor none = at::empty({0, 4, 8}, on_gpu());
    at::Tensor out = at::empty({0, 4, 8}, on_gpu());
    groups.cp->exchange(none, ring.next, out, ring.previous, "test")->wait();
    groups.cp->all_gather(out, none, "test")->wait();
    groups.cp->all_to_all(out, none, "test")->wait();
    groups.cp->reduce_scatter(out, none, "test")->wait();
    groups.cp->all_reduce(out, ReduceOp::sum, "test")->wait();
    groups.cp->synchronize("test");
    groups.cp->checked_barrier(1, kLongEnough);
  });
}

TEST_P(NcclRanks, ManyExchangesOfRandomSizesArriveInOrder) {
  on_gpu_ranks(GetParam(), [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    const Ring ring(rank);
    constexpr int kRounds = 300;
    std::mt19937 random(7);  // the same sizes on every rank
    std::vector<at::Tensor> received;
    std::vector<Communicator::WorkPtr> works;
    const auto start = Clock::now();
    for (int round = 0; round < kRounds; ++round) {
      std::vector<std::int64_t> sizes;
      for (int r = 0; r < rank.size; ++r) sizes.push_back(random() % 4 == 0 ? 0 : random() % 100000);
      if (rank.size == 1) sizes.assign(1, 1000);
      const at::Tensor send = filled({sizes[static_cast<std::size_t>(rank.rank)]}, round * 10 + rank.rank);
      received.push_back(at::empty({sizes[static_cast<std::size_t>(ring.previous)]}, on_gpu()));
      works.push_back(
          groups.cp->exchange(send, ring.next, received.back(), ring.previous, fmt::format("round {}", round)));
    }
    fmt::print("[ figures  ] rank {} of {}: {} exchanges enqueued in {:.3f} ms each\n", rank.rank, rank.size, kRounds,
               milliseconds_since(start) / kRounds);
    for (const auto& work : works) work->wait();
    groups.cp->synchronize("rounds");
    for (int round = 0; round < kRounds; ++round) {
      const at::Tensor& got = received[static_cast<std::size_t>(round)];
      ASSERT_TRUE(got.eq(round * 10 + ring.previous).all().item<bool>()) << "rank " << rank.rank << " round " << round;
    }
    groups.cp->checked_barrier(2, kLongEnough);
  });
}

TEST_F(NcclFour, SumsOf16BitAreRoundedOnce) {
  // 256 + 1 + 1 + 1 in bf16: each addition alone would round back to 256.
  on_gpu_ranks(4, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    at::Tensor sum = filled({1}, rank.rank == 0 ? 256 : 1, at::kBFloat16);
    groups.cp->all_reduce(sum, ReduceOp::sum, "test")->wait();
    EXPECT_EQ(sum.item<float>(), 260.0F);  // 259 rounds to even
  });
}

TEST_F(NcclFour, PairsAreAdjacentRanksAndRingsOfEqualParity) {
  on_gpu_ranks(4, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    ASSERT_TRUE(groups.inner && groups.outer);
    const at::Tensor own = at::full({1}, rank.rank, on_gpu(at::kLong));
    at::Tensor pair = at::zeros({2}, on_gpu(at::kLong));
    groups.inner->all_gather(pair, own, "test")->wait();
    EXPECT_TRUE(at::equal(pair.cpu(), at::arange(2).add(rank.rank / 2 * 2)));
    at::Tensor ring = at::zeros({2}, on_gpu(at::kLong));
    groups.outer->all_gather(ring, own, "test")->wait();
    EXPECT_TRUE(at::equal(ring.cpu(), at::arange(2).mul(2).add(rank.rank % 2)));
    for (const auto& group : {groups.cp, groups.inner, groups.outer}) group->checked_barrier(3, kLongEnough);
  });
}

TEST_F(NcclPair, HasNoPairsOrRings) {
  on_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    EXPECT_EQ(groups.inner, nullptr);
    EXPECT_EQ(groups.outer, nullptr);
  });
}

// --- Streams ---------------------------------------------------------------------------------------------------------

TEST_P(NcclRanks, UnderDelaysAMissingWaitShowsAndAWaitDoesNot) {
  on_gpu_ranks(GetParam(), [](const GpuRank& rank) {
    setenv("CP_POOL_DEBUG_STREAM_DELAYS", "7:2000", 1);
    const CpGroups groups = rank.connect();
    const Ring ring(rank);
    int overtaken = 0;
    for (int i = 0; i < 20; ++i) {
      at::Tensor got = filled({1000}, -1);
      auto work = groups.cp->exchange(filled({1000}, i), ring.next, got, ring.previous, "test");
      const at::Tensor too_early = got.clone();
      work->wait();
      EXPECT_TRUE(got.eq(i).all().item<bool>()) << "round " << i;
      overtaken += too_early.eq(i).all().item<bool>() ? 0 : 1;
    }
    EXPECT_GT(overtaken, 0);
  });
}

TEST_P(NcclRanks, AnOperationWaitsForTheStreamThatMadeItsInput) {
  on_gpu_ranks(GetParam(), [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    const Ring ring(rank);
    for (int i = 0; i < 5; ++i) {
      at::Tensor send = filled({1000}, -1);
      at::Tensor got = filled({1000}, -1);
      cuda_part().delay(2'000'000);
      send.fill_(i);
      groups.cp->exchange(send, ring.next, got, ring.previous, "test")->wait();
      send.fill_(-1);  // after the exchange, whatever the stream
      EXPECT_TRUE(got.eq(i).all().item<bool>()) << "round " << i;
    }
  });
}

TEST_P(NcclRanks, ACudaGraphOfAnExchangeAndAMergeGivesTheSameBits) {
  on_gpu_ranks(GetParam(), [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    const Ring ring(rank);
    const std::vector<RowRange> rows{{.row = 3, .count = 50}, {.row = 60, .count = 4}};
    const at::Tensor part = at::randn({64, 4, 32}, on_gpu());
    const at::Tensor part_lse = at::randn({4, 64}, on_gpu());
    const at::Tensor first_out = at::randn({64, 4, 32}, on_gpu());
    const at::Tensor first_lse = at::randn({4, 64}, on_gpu());
    at::Tensor out = at::empty_like(first_out);
    at::Tensor lse = at::empty_like(first_lse);
    at::Tensor received = at::empty_like(part);
    at::Tensor sum = at::empty({4}, on_gpu());
    const auto step = [&] {
      out.copy_(first_out);
      lse.copy_(first_lse);
      sum.fill_(rank.rank);
      groups.cp->exchange(part, ring.next, received, ring.previous, "captured")->wait();
      merge_partial(out, lse, received, part_lse, rows);
      groups.cp->all_reduce(sum, ReduceOp::sum, "captured")->wait();
    };
    // Connects the ranks.
    step();
    groups.cp->synchronize("before the capture");
    const at::Tensor eager = out.clone();

    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    c10::cuda::device_synchronize();
    {
      at::cuda::CUDAGraph graph;
      graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      step();
      graph.capture_end();
      for (int i = 0; i < 20; ++i) {
        out.zero_();
        received.zero_();
        graph.replay();
        groups.cp->synchronize("replay");
        EXPECT_TRUE(at::equal(out, eager)) << "replay " << i;
        EXPECT_EQ(sum[0].item<float>(), static_cast<float>(rank.size * (rank.size - 1)) / 2.0F);
      }
    }
    groups.cp->checked_barrier(4, kLongEnough);
  });
}

// --- Failures --------------------------------------------------------------------------------------------------------

// Connects the ranks, so that what comes next waits on the device and not for connections.
void meet(const GpuRank& rank, const CpGroups& groups) {
  const Ring ring(rank);
  at::Tensor got = filled({1}, 0);
  groups.cp->exchange(filled({1}, 1), ring.next, got, ring.previous, "meet")->wait();
  groups.cp->synchronize("meet");
}

TEST_F(NcclPair, ADeadlineEndsAWaitNamingRankOperationPeerAndStep) {
  on_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    meet(rank, groups);
    if (rank.rank == 1) return rank.await("given up");
    groups.cp->set_deadline(Clock::now() + 300ms);
    at::Tensor got = filled({1 << 20}, 0);
    auto work = groups.cp->exchange(filled({1 << 20}, 0), 1, got, 1, "p2p step 3");
    work->wait();
    const auto error = error_of([&] { groups.cp->synchronize("p2p forward"); });
    rank.tell("given up");
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), CommError::Kind::timeout);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("rank 0: exchange, p2p step 3: send to rank 1, receive from rank 1"),
                                     HasSubstr("timed out"), HasSubstr("p2p forward")));
    const auto later = error_of([&] { work->wait(); });
    ASSERT_TRUE(later);
    EXPECT_EQ(later->kind(), CommError::Kind::aborted);
  });
}

TEST_F(NcclPair, ADeadlineEndsTheFirstOperationBetweenTwoRanksToo) {
  on_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    if (rank.rank == 1) return rank.await("given up");
    groups.cp->set_deadline(Clock::now() + 300ms);
    at::Tensor got = filled({1 << 20}, 0);
    const auto error = error_of([&] {
      groups.cp->exchange(filled({1 << 20}, 0), 1, got, 1, "p2p step 0")->wait();
      groups.cp->synchronize("p2p forward");
    });
    rank.tell("given up");
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), CommError::Kind::timeout);
    EXPECT_THAT(error->what(), HasSubstr("rank 0: exchange, p2p step 0: send to rank 1, receive from rank 1"));
  });
}

TEST_F(NcclPair, AnAbortFreesARankThatWaitsAndItsDevice) {
  on_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    meet(rank, groups);
    if (rank.rank == 1) return rank.await("freed");
    at::Tensor got = filled({1 << 20}, 0);
    groups.cp->exchange(filled({1 << 20}, 0), 1, got, 1, "test")->wait();
    const auto start = Clock::now();
    std::jthread aborter([&] { groups.cp->abort(); });  // before, while or after the wait begins: it must not matter
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
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), CommError::Kind::aborted);
    EXPECT_LT(freed_after, kFreedMilliseconds);
    EXPECT_EQ(at::ones({10}, on_gpu()).sum().item<float>(), 10.0F);
  });
}

TEST_P(NcclRanks, AnAbortFailsEveryLaterOperationOfEveryGroup) {
  on_gpu_ranks(GetParam(), [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    const auto& any = groups.inner ? groups.inner : groups.cp;
    any->abort();
    any->abort();
    at::Tensor sum = filled({1}, 1);
    for (const auto& group : {groups.cp, groups.inner, groups.outer}) {
      if (!group) continue;
      const auto error = error_of([&] { group->all_reduce(sum, ReduceOp::sum, "test")->wait(); });
      ASSERT_TRUE(error);
      EXPECT_EQ(error->kind(), CommError::Kind::aborted);
      EXPECT_TRUE(error_of([&] { group->synchronize("test"); }));
      EXPECT_TRUE(error_of([&] { group->checked_barrier(1, kLongEnough); }));
    }
  });
}

TEST_P(NcclRanks, GroupsAreMadeAgainOnTheSameStoreAfterAnAbort) {
  on_gpu_ranks(GetParam(), [](const GpuRank& rank) {
    for (int generation = 0; generation < 3; ++generation) {
      const auto start = Clock::now();
      const CpGroups groups = rank.connect(fmt::format("gen/{}/", generation));
      const double connected = milliseconds_since(start);
      at::Tensor sum = filled({1}, 1);
      groups.cp->all_reduce(sum, ReduceOp::sum, "test")->wait();
      groups.cp->synchronize("test");
      const double reduced = milliseconds_since(start);
      EXPECT_EQ(sum.item<float>(), static_cast<float>(rank.size));
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
    const auto error = error_of([&] { (void)cuda_part().make_groups(rank.store, "test/", 0, 2, 2s); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), CommError::Kind::timeout);
    EXPECT_THAT(error->what(), HasSubstr("rank 0: connecting 2 ranks over NCCL: rank 1 did not come in time"));
  });
}

TEST_F(NcclPair, WorkMayBeDroppedUnfinished) {
  on_gpu_ranks(2, [](const GpuRank& rank) {
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
  on_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    const auto error = error_of([&] { groups.cp->checked_barrier(rank.rank == 1 ? 8 : 7, kLongEnough); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), CommError::Kind::failed);
    EXPECT_THAT(error->what(), HasSubstr("rank 1 is at tag 8 after 0 operations, but rank 0 at tag 7 after 0"));
  });
}

TEST_F(NcclPair, ABarrierNamesTheRankThatDidMoreOperations) {
  on_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    meet(rank, groups);
    groups.cp->checked_barrier(6, kLongEnough);
    at::Tensor got = filled({1 << 20}, 0);
    Communicator::WorkPtr unmatched;
    if (rank.rank == 1) unmatched = groups.cp->exchange(filled({1 << 20}, 0), 0, got, 0, "too much");
    const auto start = Clock::now();
    const auto error = error_of([&] { groups.cp->checked_barrier(7, kLongEnough); });
    EXPECT_LT(milliseconds_since(start), 2000.0);
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("rank 1 is at tag 7 after 2 operations, but rank 0 at tag 7 after 1"));
  });
}

TEST_F(NcclPair, ABarrierNamesTheRankThatDidNotArrive) {
  on_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    if (rank.rank == 1) return rank.await("given up");
    const auto error = error_of([&] { groups.cp->checked_barrier(7, 300ms); });
    rank.tell("given up");
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), CommError::Kind::timeout);
    EXPECT_THAT(error->what(), HasSubstr("rank 0: barrier with tag 7: receive from rank 1: timed out"));
  });
}

TEST_P(NcclRanks, ABarrierMayFollowAPassedDeadline) {
  on_gpu_ranks(GetParam(), [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    groups.cp->set_deadline(Clock::now() - 1s);
    groups.cp->checked_barrier(7, kLongEnough);
  });
}

}  // namespace
}  // namespace cp_pool
