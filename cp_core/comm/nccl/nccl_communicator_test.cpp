#include <array>
#include <cstdlib>
#include <random>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cp_core/comm/nccl/gpu_groups.h"
#include "cp_core/testing/busy_gpu.h"
#include "cp_core/testing/gpu_communicators.h"
#include "cp_core/thd/merge_partial.h"

namespace cp_pool {
namespace {

using Clock = Communicator::Clock;

INSTANTIATE_TEST_SUITE_P(WorldSizes, NcclRanks, ranks_and_ways());

// --- Operations ------------------------------------------------------------------------------------------------------

TEST_P(NcclRanks, ExchangeAllGatherAndAllToAllMoveAnyDtype) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    const Neighbours ring(rank);
    const int n = rank.size;
    EXPECT_EQ(groups.cp->rank(), rank.rank);
    EXPECT_EQ(groups.cp->size(), n);
    for (const auto dtype :
         {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kInt, at::kLong, at::kByte, at::kBool}) {
      SCOPED_TRACE(fmt::format("rank {}, {}", rank.rank, c10::toString(dtype)));
      at::Tensor got = filled({3 + ring.previous, 2}, 0, dtype);
      groups.cp->exchange(filled({3 + rank.rank, 2}, rank.rank, dtype), ring.next, got, ring.previous, "test")->wait();
      EXPECT_TRUE(at::equal(got, filled({3 + ring.previous, 2}, ring.previous, dtype)));

      const std::array sends{filled({2 + rank.rank}, rank.rank, dtype), filled({0}, 0, dtype),
                             filled({3}, 1, at::kFloat)};
      const std::array receives{filled({2 + ring.previous}, 0, dtype), filled({0}, 0, dtype),
                                filled({3}, 0, at::kFloat)};
      groups.cp->exchange_many(sends, ring.next, receives, ring.previous, "test")->wait();
      EXPECT_TRUE(at::equal(receives[0], filled({2 + ring.previous}, ring.previous, dtype)));
      EXPECT_TRUE(at::equal(receives[2], filled({3}, 1, at::kFloat)));

      const at::Tensor numbers = at::arange(n, on_gpu());
      at::Tensor gathered = filled({n, 5}, 0, dtype);
      groups.cp->all_gather(gathered, filled({1, 5}, rank.rank, dtype), "test")->wait();
      EXPECT_TRUE(at::equal(gathered, numbers.view({n, 1}).expand({n, 5}).to(dtype)));
    }
    groups.cp->synchronize("test");
  });
}

TEST_P(NcclRanks, ReduceScatterAndAllReduceSumAndFindTheLargest) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
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
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    const Neighbours ring(rank);
    const at::Tensor none = at::empty({0, 4, 8}, on_gpu());
    at::Tensor out = at::empty({0, 4, 8}, on_gpu());
    groups.cp->exchange(none, ring.next, out, ring.previous, "test")->wait();
    groups.cp->all_gather(out, none, "test")->wait();
    groups.cp->reduce_scatter(out, none, "test")->wait();
    groups.cp->all_reduce(out, ReduceOp::sum, "test")->wait();
    groups.cp->synchronize("test");
    groups.cp->checked_barrier(1, kLongEnough);
  });
}

TEST_P(NcclRanks, ManyExchangesOfRandomSizesArriveInOrder) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    const Neighbours ring(rank);
    constexpr int kRounds = 300;
    std::mt19937 random(7);  // the same sizes on every rank
    std::vector<at::Tensor> received;
    std::vector<Communicator::WorkPtr> works;
    const auto start = Clock::now();
    for (int round = 0; round < kRounds; ++round) {
      std::vector<std::int64_t> sizes;
      sizes.reserve(static_cast<std::size_t>(rank.size));
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
  on_warm_gpu_ranks(4, [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    at::Tensor sum = filled({1}, rank.rank == 0 ? 256 : 1, at::kBFloat16);
    groups.cp->all_reduce(sum, ReduceOp::sum, "test")->wait();
    EXPECT_EQ(sum.item<float>(), 260.0F);  // 259 rounds to even
  });
}

TEST_F(NcclFour, PairsAreAdjacentRanksAndRingsOfEqualParity) {
  on_warm_gpu_ranks(4, [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
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

TEST_P(NcclRanks, GroupsWorkAtOnce) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups& all = rank.groups();
    std::vector<Division> divisions{strided(rank.size, rank.size)};
    for (const auto& groups : {std::array{0, 1, 0, 1}, {0, 0, 1, 1}, {1, 0, 0, 1}, {0, 1, 0, 1}}) {
      if (rank.size == 4) divisions.push_back({.groups = {groups.begin(), groups.end()}});
    }
    for (const Division& division : divisions) {
      SCOPED_TRACE(fmt::format("rank {} of {}", rank.rank, groups_of(division)));
      const CpGroups own = all.cp->divided(division);
      const std::vector<int> ranks = group_ranks(rank.rank, rank.size, division).cp;
      const auto size = static_cast<int>(ranks.size());
      ASSERT_EQ(own.cp->rank(), rank_in_group(division, rank.rank));
      ASSERT_EQ(own.cp->size(), size);
      EXPECT_EQ(own.inner, nullptr) << "pairs need four ranks";
      const at::Tensor members = at::tensor(ranks).to(on_gpu());
      // Groups may do different numbers of operations.
      for (int round = 0; round <= group_of_rank(division, rank.rank); ++round) {
        at::Tensor here = filled({size}, -1);
        own.cp->all_gather(here, filled({1}, rank.rank), "test")->wait();
        EXPECT_TRUE(at::equal(here, members));
        at::Tensor sum = filled({1}, rank.rank);
        own.cp->all_reduce(sum, ReduceOp::sum, "test")->wait();
        EXPECT_TRUE(at::equal(sum[0], members.sum()));
      }
      own.cp->checked_barrier(size, kLongEnough);
      EXPECT_EQ(all.cp->divided(division).cp, own.cp) << "made once";
    }
  });
}

TEST_F(NcclPair, HasNoPairsOrRings) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    EXPECT_EQ(groups.inner, nullptr);
    EXPECT_EQ(groups.outer, nullptr);
  });
}

// --- Streams ---------------------------------------------------------------------------------------------------------

TEST_P(NcclRanks, UnderDelaysAMissingWaitShowsAndAWaitDoesNot) {
  on_gpu_ranks(ranks(), [](const GpuRank& rank) {
    setenv("CP_POOL_DEBUG_STREAM_DELAYS", "7:2000", 1);
    const CpGroups groups = rank.connect();
    const Neighbours ring(rank);
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
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    const Neighbours ring(rank);
    for (int i = 0; i < 5; ++i) {
      at::Tensor send = filled({1000}, -1);
      at::Tensor got = filled({1000}, -1);
      test::keep_gpu_busy(2'000'000);
      send.fill_(i);
      groups.cp->exchange(send, ring.next, got, ring.previous, "test")->wait();
      send.fill_(-1);  // must come after the exchange has read `send`
      EXPECT_TRUE(got.eq(i).all().item<bool>()) << "round " << i;
    }
  });
}

TEST_P(NcclRanks, ACudaGraphOfAnExchangeAndAMergeGivesTheSameBits) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    const Neighbours ring(rank);
    const std::vector<RowCopy> rows{{.source = 3, .target = 3, .count = 50}, {.source = 60, .target = 60, .count = 4}};
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
    // The first step connects the ranks, which a capture cannot do.
    step();
    groups.cp->synchronize("before the capture");
    const at::Tensor eager = out.clone();

    const auto forget = [&] {
      out.zero_();
      received.zero_();
    };
    replay_captured(groups, step, forget, [&](int i) {
      EXPECT_TRUE(at::equal(out, eager)) << "replay " << i;
      EXPECT_EQ(sum[0].item<float>(), static_cast<float>(rank.size * (rank.size - 1)) / 2.0F);
    });
    groups.cp->checked_barrier(4, kLongEnough);
  });
}

}  // namespace
}  // namespace cp_pool
