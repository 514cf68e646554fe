// Tests communicators whose ranks write into each other's memory.
#include <algorithm>
#include <chrono>
#include <cuda_runtime_api.h>
#include <thread>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cp_core/comm/nccl/gpu_groups.h"
#include "cp_core/comm/peer/peer_link.h"
#include "cp_core/testing/busy_gpu.h"
#include "cp_core/testing/gpu_communicators.h"

namespace cp_pool {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using Clock = Communicator::Clock;

class PeerCopies : public NcclRanks {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, PeerCopies,
                         testing::Combine(testing::Values(2, 4), testing::Values(Way::peer_copies, Way::shared)));

// The free memory of this rank's device, in bytes.
std::size_t free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

TEST_P(PeerCopies, NothingIsWrittenBeforeTheWindowIsOpened) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    const Neighbours ring(rank);
    for (int i = 0; i < 10; ++i) {
      at::Tensor window = filled({1 << 20}, i);
      if (rank.rank == i % rank.size) test::keep_gpu_busy(5'000'000);
      const at::Tensor before = window.clone();  // comes late on one rank
      groups.cp->exchange(filled({1 << 20}, 100 + i), ring.next, window, ring.previous, "test")->wait();
      EXPECT_TRUE(before.eq(i).all().item<bool>()) << "round " << i;
      EXPECT_TRUE(window.eq(100 + i).all().item<bool>()) << "round " << i;
    }
  });
}

TEST_F(NcclPair, AWaitIsForTheLastByteThatAPeerWrites) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    constexpr std::int64_t kMuch = std::int64_t{128} << 20;  // elements; the other rank sends only one
    const at::Tensor sent = filled({rank.rank == 0 ? kMuch : 1}, 1);
    for (int i = 0; i < 3; ++i) {
      at::Tensor got = filled({rank.rank == 0 ? 1 : kMuch}, -1);
      groups.cp->exchange(sent, 1 - rank.rank, got, 1 - rank.rank, "test")->wait();
      EXPECT_EQ(got[-1].item<float>(), 1.0F) << "round " << i;
    }
  });
}

TEST_P(PeerCopies, MemoryMayComeAndGo) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    const Neighbours ring(rank);
    for (int i = 0; i < 12; ++i) {
      const std::int64_t elements = (std::int64_t{3} << 20) * (1 + i % 5);  // large enough for allocations of their own
      {
        at::Tensor got = filled({elements}, -1);
        const at::Tensor sent = filled({elements}, 10 * i + rank.rank);
        groups.cp->exchange(sent, ring.next, got, ring.previous, "test")->wait();
        EXPECT_TRUE(got.eq(10 * i + ring.previous).all().item<bool>()) << "round " << i;
        groups.cp->synchronize("test");
      }
      if (i % 2 == 1) c10::cuda::CUDACachingAllocator::emptyCache();
    }
    groups.cp->checked_barrier(1, kLongEnough);
  });
}

// The driver keeps memory that its owner has freed until the last rank that has it open closes it.
TEST_P(PeerCopies, ABarrierLeavesNoMemoryOpen) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    const Neighbours ring(rank);
    constexpr std::int64_t kElements = std::int64_t{256} << 20;  // an allocation of 1 GiB
    constexpr std::size_t kBytes = kElements * sizeof(float);
    std::int64_t barriers = 0;
    const auto meet = [&] { groups.cp->checked_barrier(++barriers, kLongEnough); };
    // The memory of ranks that share a device is counted together, while none of them takes or frees any.
    const auto free_of_all = [&] {
      meet();
      c10::cuda::CUDACachingAllocator::emptyCache();
      meet();
      const std::size_t free = free_bytes();
      meet();
      return free;
    };
    for (int i = 0; i < 3; ++i) {
      const std::size_t before = free_of_all();
      {
        at::Tensor got = filled({kElements}, -1);
        groups.cp->exchange(filled({kElements}, rank.rank + i), ring.next, got, ring.previous, "test")->wait();
        EXPECT_TRUE(got[-1].eq(ring.previous + i).item<bool>()) << "round " << i;
        EXPECT_LE(free_bytes() + kBytes, before) << "round " << i;
      }
      EXPECT_GT(free_of_all() + kBytes / 2, before) << "round " << i;
    }
  });
}

TEST_P(PeerCopies, AGraphOfPutsGivesTheSameBitsAtEachReplay) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    const Neighbours ring(rank);
    const at::Tensor mine = at::arange(1 << 18, on_gpu()).add(rank.rank);
    at::Tensor got = at::empty_like(mine);
    at::Tensor whole = at::empty({(1 << 18) * rank.size}, on_gpu());
    const auto step = [&] {
      groups.cp->exchange(mine, ring.next, got, ring.previous, "captured")->wait();
      groups.cp->all_gather(whole, got, "captured")->wait();
    };
    step();
    groups.cp->synchronize("before the capture");
    const at::Tensor eager = whole.clone();
    const auto longer_step = [&] {
      step();
      const at::Tensor made_inside = got.mul(2);  // allocated during the capture
      at::Tensor received_inside = at::empty_like(made_inside);
      groups.cp->exchange(made_inside, ring.next, received_inside, ring.previous, "captured")->wait();
      got.copy_(received_inside);
    };
    const auto forget = [&] {
      whole.zero_();
      got.zero_();
    };
    const int before_previous = (ring.previous + rank.size - 1) % rank.size;
    replay_captured(groups, longer_step, forget, [&](int i) {
      EXPECT_TRUE(at::equal(whole, eager)) << "replay " << i;
      EXPECT_TRUE(at::equal(got, at::arange(1 << 18, on_gpu()).add(before_previous).mul(2))) << "replay " << i;
    });
    groups.cp->checked_barrier(4, kLongEnough);
  });
}

TEST_F(NcclPair, ADeadlineEndsTheWaitForAPeersHost) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    if (rank.rank == 1) return rank.await("given up");
    groups.cp->set_deadline(Clock::now() + 300ms);
    at::Tensor got = filled({1 << 20}, 0);
    const auto error = error_of([&] { (void)groups.cp->exchange(filled({1 << 20}, 0), 1, got, 1, "p2p step 3"); });
    rank.tell("given up");
    expect_error(error, CommError::Kind::timeout,
                 AllOf(HasSubstr("rank 0: exchange, p2p step 3: send to rank 1, receive from rank 1"),
                       HasSubstr("timed out: rank 1 has not begun this operation")));
    const auto later = error_of([&] { groups.cp->synchronize("test"); });
    expect_error(later, CommError::Kind::aborted);
  });
}

TEST_F(NcclPair, ADeadlineEndsTheWaitForAPeersDevice) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    at::Tensor got = filled({1 << 20}, 0);
    const at::Tensor sent = filled({1 << 20}, 0);
    const auto exchange = [&](const char* what) {
      groups.cp->exchange(sent, 1 - rank.rank, got, 1 - rank.rank, what)->wait();
    };
    // Opens the memory and loads the kernels now: the peer's host then comes to the next exchange at once.
    test::keep_gpu_busy(1);
    exchange("warm-up");
    groups.cp->synchronize("warm-up");
    if (rank.rank == 1) {
      test::keep_gpu_busy(kBusyNanoseconds);
      exchange("p2p step 3");
      return rank.await("given up");
    }
    groups.cp->set_deadline(Clock::now() + 3s);  // enough for the peer's host, too short for its device
    exchange("p2p step 3");
    const auto error = error_of([&] { groups.cp->synchronize("p2p forward"); });
    rank.tell("given up");
    expect_error(error, CommError::Kind::timeout,
                 AllOf(HasSubstr("rank 0: exchange, p2p step 3: send to rank 1, receive from rank 1"),
                       HasSubstr("timed out"), HasSubstr("p2p forward")));
  });
}

TEST_F(NcclPair, AnAbortFreesAHostThatWaitsForAPeersHost) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    if (rank.rank == 1) return rank.await("freed");
    const auto start = Clock::now();
    at::Tensor got = filled({1 << 20}, 0);
    const at::Tensor sent = filled({1 << 20}, 0);
    std::jthread aborter([&] { groups.cp->abort(); });  // may come before or during the wait
    const auto error = error_of([&] { (void)groups.cp->exchange(sent, 1, got, 1, "test"); });
    const double freed_after = milliseconds_since(start);
    rank.tell("freed");
    expect_error(error, CommError::Kind::aborted);
    EXPECT_LT(freed_after, kFreedMilliseconds);
  });
}

TEST_F(NcclPair, AnAbortFreesADeviceThatWaitsForAPeersDevice) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    at::Tensor got = filled({1 << 20}, 0);
    const at::Tensor sent = filled({1 << 20}, 0);
    const auto exchange = [&] { groups.cp->exchange(sent, 1 - rank.rank, got, 1 - rank.rank, "test")->wait(); };
    // Opens the memory now, since opening waits for the device, which later waits for its peer.
    test::keep_gpu_busy(1);
    exchange();
    groups.cp->synchronize("warm-up");
    if (rank.rank == 1) test::keep_gpu_busy(kBusyNanoseconds);
    const auto first = Clock::now();
    for (int i = 0; i < 3; ++i) exchange();
    EXPECT_LT(milliseconds_since(first), kFreedBeforeBusyEndsMilliseconds) << "a host waited for a busy device";
    if (rank.rank == 1) return rank.await("freed");
    const auto start = Clock::now();
    groups.cp->abort();
    const double aborted_after = milliseconds_since(start);
    c10::cuda::device_synchronize();
    const double idle_after = milliseconds_since(start);
    rank.tell("freed");
    fmt::print("[ figures  ] abort: communicators gone after {:.0f} ms, device idle after {:.0f} ms\n", aborted_after,
               idle_after);
    EXPECT_LT(idle_after, kFreedBeforeBusyEndsMilliseconds);
  });
}

TEST_F(NcclPair, APeerThatAbortedIsHeardOfAtOnce) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    if (rank.rank == 1) {
      groups.cp->abort();
      return rank.await("heard");
    }
    const auto start = Clock::now();
    at::Tensor got = filled({16}, 0);
    const auto error = error_of([&] { (void)groups.cp->exchange(filled({16}, 0), 1, got, 1, "test"); });
    rank.tell("heard");
    EXPECT_LT(milliseconds_since(start), kFreedMilliseconds);
    expect_error(error, CommError::Kind::aborted, HasSubstr("aborted (rank 1: abort was called)"));
  });
}

// Rank 1 begins the operation after rank 0 has looked for its notes, and leaves before rank 0 looks again.
TEST_F(NcclPair, APeerMayLeaveAsSoonAsItHasSaidEverything) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const auto link = PeerLink::connect(rank.store, "link/", rank.rank, 2, rank.shares, Clock::now() + kLongEnough);
    ASSERT_TRUE(link.link) << link.why_not;
    const int peer = 1 - rank.rank;
    bool looked = false;
    const auto let_the_peer_leave = [&] {
      if (rank.rank == 1 || std::exchange(looked, true)) return;
      rank.tell("rank 0 has looked");
      rank.await("rank 1 has left");
    };
    if (rank.rank == 1) rank.await("rank 0 has looked");
    PeerLink::Operation meeting;
    meeting.number = 1;
    meeting.name = meeting.step = "meeting";
    meeting.incoming.push_back({.rank = peer, .windows = {}});
    meeting.outgoing.push_back({.rank = peer, .blocks = {}});
    EXPECT_NO_THROW(
        link.link->enqueue(meeting, c10::cuda::getCurrentCUDAStream(), Clock::now() + kLongEnough, let_the_peer_leave));
    if (rank.rank == 1) {
      link.link->leave("it has passed");
      rank.tell("rank 1 has left");
      rank.await("rank 0 has passed");
    } else {
      EXPECT_TRUE(looked);
      rank.tell("rank 0 has passed");
    }
  });
}

TEST_F(NcclPair, MessagesOfOtherSizesThanExpectedAreRefused) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    at::Tensor got = filled({rank.rank == 0 ? 16 : 8}, 0);
    const auto error =
        error_of([&] { (void)groups.cp->exchange(filled({16}, 0), 1 - rank.rank, got, 1 - rank.rank, "test"); });
    if (rank.rank == 1) return rank.await("refused");
    rank.tell("refused");
    expect_error(error, CommError::Kind::failed,
                 HasSubstr("1 rows of 64 bytes, 0 apart, from byte 0 on, for window 0 of rank 1, which "
                           "has 32 bytes"));
  });
}

TEST_F(NcclPairAlone, ThereAreNoWindows) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) { EXPECT_EQ(rank.groups().cp->windows(), nullptr); });
}

TEST_F(SharingPair, NothingButPeerCopiesConnectsRanksThatShareAGpu) {
  on_gpu_ranks(2, [](const GpuRank& rank) {
    if (rank.rank == 1) take(Way::nccl);
    expect_error(error_of([&] { (void)rank.connect(); }), CommError::Kind::failed,
                 HasSubstr("need peer copies, which are not available: rank 1: CP_POOL_PEER_COPIES is off"));
  });
}

// An allocation that finds no memory would free the allocator's cache first. That waits for all work on the device, and
// so for a peer that comes late, or never.
TEST_F(SharingPair, MemoryThatRunsOutInsideAnExchangeIsAnErrorAtOnce) {
  on_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    at::Tensor got = filled({1 << 20}, 0);
    const at::Tensor sent = filled({1 << 20}, 0);
    const auto exchange = [&] { groups.cp->exchange(sent, 1 - rank.rank, got, 1 - rank.rank, "test")->wait(); };
    exchange();
    groups.cp->synchronize("warm-up");
    if (rank.rank == 1) {
      // This rank's host has come to the exchange, while its device is late.
      rank.await("enqueued");
      test::keep_gpu_busy(kBusyNanoseconds);
      exchange();
      return rank.await("told");
    }
    {
      const at::Tensor cached = filled({64 << 20}, 0);
    }  // now cached, so that a retry of the allocation would free it
    rank.tell("enqueued");
    exchange();
    const auto start = Clock::now();
    EXPECT_THROW((void)at::empty({std::int64_t{1} << 42U}, on_gpu(at::kByte)), c10::OutOfMemoryError);
    EXPECT_LT(milliseconds_since(start), kFreedBeforeBusyEndsMilliseconds);
    groups.cp->abort();
    const auto aborted = Clock::now();
    c10::cuda::device_synchronize();
    EXPECT_LT(milliseconds_since(aborted), kFreedBeforeBusyEndsMilliseconds);
    rank.tell("told");
  });
}

// While some ranks wait on the device, the rank that works can use all of it.
TEST_F(SharingFour, RanksThatWaitTakeNothingFromTheOneThatWorks) {
  on_warm_gpu_ranks(4, [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    const at::Tensor a = at::randn({4096, 4096}, on_gpu());
    const auto work = [&] {
      at::Tensor product = a;
      for (int i = 0; i < 40; ++i) product = at::mm(a, product).mul_(1e-2);
    };
    const auto time_of_work = [&] {
      c10::cuda::device_synchronize();
      const auto start = Clock::now();
      work();
      c10::cuda::device_synchronize();
      return milliseconds_since(start);
    };
    double alone = 0;
    double beside_waiters = 0;
    if (rank.rank == 0) {
      work();
      alone = std::min({time_of_work(), time_of_work(), time_of_work()});
    }
    at::Tensor all = filled({4}, 0);
    // A busy machine may delay a round, but not every one. Rank 0 tells the others when one was fast enough.
    constexpr int kRounds = 20;
    const auto is_fast = [&] { return beside_waiters > 0 && beside_waiters < 1.1 * alone + 2; };
    for (int round = 0; round < kRounds; ++round) {
      at::Tensor enough = filled({1}, rank.rank == 0 && is_fast() ? 1 : 0);
      groups.cp->all_reduce(enough, ReduceOp::sum, "whether it is enough")->wait();
      groups.cp->synchronize("test");
      if (enough.item<float>() > 0) break;
      groups.cp->checked_barrier(round, kLongEnough);
      const auto enqueue = [&] { groups.cp->all_gather(all, filled({1}, rank.rank), "test")->wait(); };
      if (rank.rank != 0) {
        enqueue();
      } else {
        // Hosts meet before the work is enqueued. The peers' streams then wait for this rank's work.
        c10::cuda::device_synchronize();
        const auto start = Clock::now();
        work();
        enqueue();
        groups.cp->synchronize("test");
        const double took = milliseconds_since(start);
        beside_waiters = round == 0 ? took : std::min(beside_waiters, took);
      }
      groups.cp->synchronize("test");
    }
    if (rank.rank == 0) {
      fmt::print("[ figures  ] work {:.1f} ms alone, {:.1f} ms with three ranks that wait\n", alone, beside_waiters);
      EXPECT_TRUE(is_fast());
    }
  });
}

TEST_F(TwoGpus, OneRankWithoutPeerCopiesIsEnoughForAllToDoWithout) {
  on_gpu_ranks(2, [](const GpuRank& rank) {
    if (rank.rank == 1) take(Way::nccl);
    const CpGroups groups = rank.connect();
    EXPECT_EQ(groups.cp->windows(), nullptr);
    at::Tensor got = filled({16}, 0);
    groups.cp->exchange(filled({16}, rank.rank), 1 - rank.rank, got, 1 - rank.rank, "test")->wait();
    EXPECT_EQ(got[0].item<float>(), static_cast<float>(1 - rank.rank));
  });
}

}  // namespace
}  // namespace cp_pool
