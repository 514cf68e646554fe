// Tests put_all between GPUs, which copy engines carry out, or a kernel for many short pieces.
#include <array>
#include <thread>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "cp_core/comm/nccl/gpu_groups.h"
#include "cp_core/comm/windows.h"
#include "cp_core/testing/busy_gpu.h"
#include "cp_core/testing/gpu_communicators.h"

namespace cp_pool {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

class PeerPuts : public NcclRanks {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, PeerPuts,
                         testing::Combine(testing::Values(2, 4), testing::Values(Way::peer_copies, Way::shared)));

PeerWindows::Put put_of(const at::Tensor& source, int peer, std::size_t window, std::int64_t first) {
  return {.peer = peer,
          .window = window,
          .first = first,
          .block = {.source = source.const_data_ptr(), .rows = 1, .width = static_cast<std::int64_t>(source.nbytes())}};
}

// Puts the whole of `sent` into part `rank` of every rank's window, this rank's included.
std::vector<PeerWindows::Put> put_to_all(const GpuRank& rank, const at::Tensor& sent) {
  std::vector<PeerWindows::Put> puts;
  for (int to = 0; to < rank.size; ++to) {
    puts.push_back(put_of(sent, to, 0, rank.rank * static_cast<std::int64_t>(sent.nbytes())));
  }
  return puts;
}

Communicator::WorkPtr gather_by_puts(const CpGroups& groups, const GpuRank& rank, const at::Tensor& sent,
                                     const at::Tensor& gathered) {
  return groups.cp->windows()->put_all({&gathered, 1}, {&sent, 1}, put_to_all(rank, sent), "gather");
}

// Each rank sends its rows of all columns, in `pieces` blocks for each rank, and receives all rows of its columns.
void transpose_parts(const CpGroups& groups, const GpuRank& rank, const at::Tensor& mine, std::int64_t pieces) {
  const std::int64_t rows = mine.size(0);
  const std::int64_t columns = mine.size(1) / rank.size;
  const auto row_bytes = columns * static_cast<std::int64_t>(mine.element_size());
  at::Tensor whole = at::zeros({rows * rank.size, columns}, mine.options());
  std::vector<PeerWindows::Put> puts;
  for (int to = 0; to < rank.size; ++to) {
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const std::int64_t first = rows / pieces * piece;
      const at::Tensor block = mine.narrow(0, first, rows / pieces).narrow(1, to * columns, columns);
      puts.push_back({.peer = to,
                      .window = 1,
                      .first = (rank.rank * rows + first) * row_bytes,
                      .block = {.source = block.const_data_ptr(),
                                .rows = rows / pieces,
                                .width = row_bytes,
                                .source_stride = rank.size * row_bytes,
                                .target_stride = row_bytes}});
    }
  }
  const at::Tensor untouched = filled({4}, 7);
  groups.cp->windows()->put_all(std::array{untouched, whole}, {&mine, 1}, puts, "transpose")->wait();
  for (int from = 0; from < rank.size; ++from) {
    const at::Tensor expected = mine.narrow(1, rank.rank * columns, columns).add(from - rank.rank);
    EXPECT_TRUE(at::equal(whole.narrow(0, from * rows, rows), expected))
        << "from rank " << from << ", " << mine.sizes() << " in " << pieces << " pieces of " << mine.dtype();
  }
  EXPECT_TRUE(untouched.eq(7).all().item<bool>());
}

TEST_P(PeerPuts, ArriveInAllWindowsTheRanksOwnToo) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    ASSERT_NE(groups.cp->windows(), nullptr);
    const auto transpose = [&](std::int64_t rows, std::int64_t columns, at::ScalarType type, std::int64_t pieces) {
      const std::int64_t all_columns = columns * rank.size;
      // Small whole numbers, which all types can represent.
      const at::Tensor mine =
          at::arange(rows * all_columns, on_gpu()).remainder(100).add(rank.rank).to(type).view({rows, all_columns});
      transpose_parts(groups, rank, mine, pieces);
    };
    for (const std::int64_t pieces : {1, 2, 16, 128, 512}) transpose(512, 96, at::kFloat, pieces);
    transpose(8192, 1024, at::kFloat, 2);
    // Widths that are no multiples of 16 bytes.
    transpose(64, 3, at::kFloat, 2);
    transpose(64, 5, at::kHalf, 2);
    transpose(64, 7, at::kByte, 4);
    transpose(1, 1, at::kDouble, 1);
    groups.cp->checked_barrier(1, kLongEnough);
  });
}

TEST_P(PeerPuts, WriteNothingBeforeAWindowIsOpened) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    constexpr std::int64_t kElements = 1 << 20;
    for (int i = 0; i < 10; ++i) {
      const at::Tensor window = filled({kElements * rank.size}, i);
      const at::Tensor sent = filled({kElements}, 100 + rank.rank);
      if (rank.rank == i % rank.size) test::keep_gpu_busy(5'000'000);
      const at::Tensor before = window.clone();  // comes late on one rank
      gather_by_puts(groups, rank, sent, window)->wait();
      EXPECT_TRUE(before.eq(i).all().item<bool>()) << "round " << i;
      for (int from = 0; from < rank.size; ++from) {
        const at::Tensor part = window.narrow(0, from * kElements, kElements);
        EXPECT_TRUE(part.eq(100 + from).all().item<bool>()) << "round " << i << ", from rank " << from;
      }
    }
  });
}

TEST_F(NcclPair, PutsAreWaitedForUntilTheLastByte) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    constexpr std::int64_t kMuch = std::int64_t{128} << 20;  // elements; the other rank sends only one
    const at::Tensor sent = filled({rank.rank == 0 ? kMuch : 1}, 1);
    for (int i = 0; i < 3; ++i) {
      const at::Tensor got = filled({rank.rank == 0 ? 1 : kMuch}, -1);
      const std::array puts{put_of(sent, 1 - rank.rank, 0, 0)};
      groups.cp->windows()->put_all({&got, 1}, {&sent, 1}, puts, "test")->wait();
      EXPECT_EQ(got[-1].item<float>(), 1.0F) << "round " << i;
    }
  });
}

// One rank has so many pieces that it asks for a kernel, perhaps in several launches, while the others would choose
// copy engines. All must use a kernel.
TEST_P(PeerPuts, RanksWithManyPiecesAndWithOneFindOneWay) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    constexpr std::int64_t kElements = 1 << 20;
    for (int round = 0; round < 2 * rank.size; ++round) {
      const at::Tensor sent = at::arange(kElements, on_gpu()).add(rank.rank + round);
      const at::Tensor window = filled({kElements * rank.size}, -1);
      const std::int64_t many = round < rank.size ? 64 : 512;
      const std::int64_t pieces = rank.rank == round % rank.size ? many : 1;
      std::vector<PeerWindows::Put> puts;
      for (int to = 0; to < rank.size; ++to) {
        for (const at::Tensor& piece : sent.chunk(pieces)) {
          const auto first = (rank.rank * kElements + piece.storage_offset()) * std::int64_t{sizeof(float)};
          puts.push_back(put_of(piece, to, 0, first));
        }
      }
      groups.cp->windows()->put_all({&window, 1}, {&sent, 1}, puts, "gather")->wait();
      for (int from = 0; from < rank.size; ++from) {
        const at::Tensor expected = sent.add(from - rank.rank);
        EXPECT_TRUE(at::equal(window.narrow(0, from * kElements, kElements), expected))
            << "round " << round << ", from rank " << from;
      }
    }
    groups.cp->checked_barrier(5, kLongEnough);
  });
}

TEST_P(PeerPuts, GiveTheSameBitsAtEachReplayOfAGraph) {
  on_warm_gpu_ranks(ranks(), [](const GpuRank& rank) {
    const CpGroups& groups = rank.groups();
    constexpr std::int64_t kElements = 1 << 18;
    const at::Tensor mine = at::arange(kElements, on_gpu()).add(rank.rank);
    const at::Tensor all = filled({kElements * rank.size}, 0);
    const at::Tensor again = at::zeros(all.sizes(), all.options());
    const auto step = [&] {
      gather_by_puts(groups, rank, mine, all)->wait();
      gather_by_puts(groups, rank, mine.mul(2), again)->wait();
      // Sends on what has been received.
      const at::Tensor next = all.narrow(0, (rank.rank + 1) % rank.size * kElements, kElements).add(1);
      gather_by_puts(groups, rank, next, all)->wait();
    };
    step();
    groups.cp->synchronize("before the capture");
    const at::Tensor eager_all = all.clone();
    const at::Tensor eager_again = again.clone();
    EXPECT_FALSE(at::equal(eager_all, eager_again));
    const auto forget = [&] {
      all.zero_();
      again.zero_();
    };
    replay_captured(groups, step, forget, [&](int i) {
      EXPECT_TRUE(at::equal(all, eager_all)) << "replay " << i;
      EXPECT_TRUE(at::equal(again, eager_again)) << "replay " << i;
    });
    groups.cp->checked_barrier(4, kLongEnough);
  });
}

// The groups of two ranks do different numbers of operations.
TEST_F(NcclFour, PutsOfGroupsAndOfAllRanksKeepApart) {
  on_warm_gpu_ranks(4, [](const GpuRank& rank) {
    const CpGroups& all = rank.groups();
    const CpGroups own = all.cp->divided(strided(4, 2));
    const GpuRank in_own{.rank = own.cp->rank(), .size = own.cp->size()};
    const auto gather = [](const CpGroups& groups, const GpuRank& of, int value) {
      const at::Tensor sent = filled({1000}, value + of.rank);
      const at::Tensor got = filled({1000 * of.size}, -1);
      gather_by_puts(groups, of, sent, got)->wait();
      for (int from = 0; from < of.size; ++from) {
        EXPECT_TRUE(got.narrow(0, 1000 * from, 1000).eq(value + from).all().item<bool>()) << value << " of " << from;
      }
    };
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i <= rank.rank % 2; ++i) gather(own, in_own, 100 * (1 + rank.rank % 2) + 10 * i);
      gather(all, rank, round);
    }
  });
}

TEST_F(NcclPair, PutsOutsideAWindowAreRefused) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    const at::Tensor source = filled({4}, 0);
    const at::Tensor window = filled({16}, 0);
    const auto put = [&](int to, std::int64_t first) {
      const std::array puts{put_of(source, to, 0, first)};
      static_cast<void>(groups.cp->windows()->put_all({&window, 1}, {&source, 1}, puts, "test"));
    };
    EXPECT_NO_THROW(put(1 - rank.rank, 48));
    EXPECT_THROW(put(rank.rank, 52), std::invalid_argument);
    expect_error(error_of([&] { put(1 - rank.rank, 52); }), CommError::Kind::failed, HasSubstr("from byte 52 on"));
  });
}

// Opens the memory and loads the kernels before a test. Both wait for the device, which later waits for its peer.
void warm_up(const CpGroups& groups, const GpuRank& rank, const at::Tensor& sent, const at::Tensor& got) {
  test::keep_gpu_busy(1);
  gather_by_puts(groups, rank, sent, got)->wait();
  groups.cp->synchronize("warm-up");
}

TEST_F(NcclPair, ADeadlineEndsAPutThatWaitsForAPeersDevice) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    const at::Tensor sent = filled({1 << 20}, 0);
    const at::Tensor got = filled({2 << 20}, 0);
    warm_up(groups, rank, sent, got);
    if (rank.rank == 1) {
      test::keep_gpu_busy(kBusyNanoseconds);
      gather_by_puts(groups, rank, sent, got)->wait();
      return rank.await("given up");
    }
    groups.cp->set_deadline(Communicator::Clock::now() + 3s);  // too short for the peer's device
    gather_by_puts(groups, rank, sent, got)->wait();
    const auto error = error_of([&] { groups.cp->synchronize("a2a forward"); });
    rank.tell("given up");
    expect_error(error, CommError::Kind::timeout,
                 AllOf(HasSubstr("rank 0: put, gather"), HasSubstr("timed out"), HasSubstr("a2a forward")));
  });
}

TEST_F(NcclPair, AnAbortFreesPutsThatWaitForAPeersDevice) {
  on_warm_gpu_ranks(2, [](const GpuRank& rank) {
    const CpGroups groups = rank.connect();
    const at::Tensor sent = filled({1 << 20}, 0);
    const at::Tensor got = filled({2 << 20}, 0);
    warm_up(groups, rank, sent, got);
    if (rank.rank == 1) test::keep_gpu_busy(kBusyNanoseconds);
    const auto first = Communicator::Clock::now();
    for (int i = 0; i < 3; ++i) gather_by_puts(groups, rank, sent, got)->wait();
    EXPECT_LT(milliseconds_since(first), kFreedBeforeBusyEndsMilliseconds) << "a host waited for a busy device";
    if (rank.rank == 1) return rank.await("freed");
    const auto start = Communicator::Clock::now();
    groups.cp->abort();
    c10::cuda::device_synchronize();
    const double idle_after = milliseconds_since(start);
    rank.tell("freed");
    EXPECT_LT(idle_after, kFreedBeforeBusyEndsMilliseconds);
  });
}

}  // namespace
}  // namespace cp_pool
