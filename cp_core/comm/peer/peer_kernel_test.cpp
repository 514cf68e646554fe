// Tests the kernel of an exchange with ranks that are streams of one GPU, so that any machine can have any number of
// ranks.
#include "cp_core/comm/peer/peer_kernel.h"

#include <algorithm>
#include <array>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include "cp_core/testing/gpu_fixture.h"

namespace cp_pool {
namespace {

// The multiprocessors that all ranks use together. They must be few, since the kernels of all ranks have to run at the
// same time.
constexpr int kMultiprocessorsOfAllRanks = 64;
constexpr std::uint64_t kLateNanoseconds = 3'000'000;

at::TensorOptions on_device(at::ScalarType type) {
  return at::TensorOptions().device(at::kCUDA).dtype(type);
}

// The flags and turns of all ranks. Flag words are [kind, waiting rank, raising rank].
class Ranks {
 public:
  explicit Ranks(int count)
      : count_(count),
        words_(at::zeros({2, count, count}, on_device(at::kInt))),
        turns_(at::zeros({count, std::int64_t{sizeof(cuda::PeerTurn) / sizeof(int)}}, on_device(at::kInt))) {
    for (int rank = 0; rank < count; ++rank) streams_.push_back(c10::cuda::getStreamFromPool());
    C10_CUDA_CHECK(cudaHostAlloc(&stop_, sizeof(unsigned), cudaHostAllocMapped));
    *stop_ = 0;
    c10::cuda::device_synchronize();
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks() {
    stop();
    C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
    C10_CUDA_CHECK_WARN(cudaFreeHost(stop_));
  }

  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] c10::cuda::CUDAStream stream(int rank) const { return streams_[static_cast<std::size_t>(rank)]; }
  // How many operations of a rank have ended, and how many thread blocks of the next one have written.
  [[nodiscard]] std::array<int, 2> turn(int rank) const {
    return {turns_[rank][0].item<int>(), turns_[rank][1].item<int>()};
  }
  void stop() { *static_cast<volatile unsigned*>(stop_) = 1; }

  // Launches an operation on the rank's stream.
  void launch(int rank, const std::vector<BlockCopy>& to_peers, const std::vector<BlockCopy>& own) {
    std::vector<unsigned*> tell_ready;
    std::vector<unsigned*> await_ready;
    std::vector<unsigned*> tell_arrived;
    std::vector<unsigned*> await_arrived;
    for (int peer = 0; peer < count_; ++peer) {
      if (peer == rank) continue;
      tell_ready.push_back(word(0, peer, rank));
      await_ready.push_back(word(0, rank, peer));
      tell_arrived.push_back(word(1, peer, rank));
      await_arrived.push_back(word(1, rank, peer));
    }
    const cuda::PeerOperation operation{.tell_ready = tell_ready,
                                        .await_ready = await_ready,
                                        .tell_arrived = tell_arrived,
                                        .await_arrived = await_arrived,
                                        .stop = stop_,
                                        .blocks = to_peers,
                                        .own = own,
                                        .turns = static_cast<cuda::PeerTurn*>(turns_.mutable_data_ptr()) + rank};
    cuda::launch_peer_operation(operation, std::max(kMultiprocessorsOfAllRanks / count_, 1), stream(rank));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }

 private:
  [[nodiscard]] unsigned* word(int kind, int waiting, int telling) const {
    return static_cast<unsigned*>(words_.mutable_data_ptr()) + (kind * count_ + waiting) * count_ + telling;
  }

  int count_;
  at::Tensor words_;
  at::Tensor turns_;
  std::vector<c10::cuda::CUDAStream> streams_;
  unsigned* stop_ = nullptr;
};

// Each rank sends its rows of all columns and receives all rows of its columns.
struct Transposition {
  std::int64_t rows = 0;     // rows of each rank
  std::int64_t columns = 0;  // columns of each rank
  std::int64_t pieces = 1;   // blocks that a rank sends to each other rank
  at::ScalarType type = at::kFloat;
};

class Exchange {
 public:
  Exchange(const Transposition& of, int ranks) : of_(of), ranks_(ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      sources_.push_back(at::zeros({of.rows, of.columns * ranks}, on_device(of.type)));
      windows_.push_back(at::zeros({of.rows * ranks, of.columns}, on_device(of.type)));
    }
  }

  // Fills a rank's source for a round and clears its window, on the current stream.
  void begin(int rank, int round) {
    const auto index = static_cast<std::size_t>(rank);
    sources_[index].copy_(given(rank, round));
    windows_[index].fill_(kNothing);
  }
  [[nodiscard]] const at::Tensor& window(int rank) const { return windows_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] at::Tensor nothing() const { return at::full({of_.rows * ranks_, of_.columns}, kNothing, options()); }
  [[nodiscard]] at::Tensor expected(int rank, int round) const {
    at::Tensor all = nothing();
    for (int from = 0; from < ranks_; ++from) {
      all.narrow(0, from * of_.rows, of_.rows).copy_(given(from, round).narrow(1, rank * of_.columns, of_.columns));
    }
    return all;
  }
  [[nodiscard]] std::vector<BlockCopy> blocks(int from, int to) const {
    const std::int64_t rows = of_.rows / of_.pieces;
    const at::Tensor source = sources_[static_cast<std::size_t>(from)].narrow(1, to * of_.columns, of_.columns);
    const at::Tensor target = window(to).narrow(0, from * of_.rows, of_.rows);
    const auto width = of_.columns * static_cast<std::int64_t>(source.element_size());
    std::vector<BlockCopy> copies;
    for (std::int64_t piece = 0; piece < of_.pieces; ++piece) {
      copies.push_back({.source = source.narrow(0, piece * rows, rows).const_data_ptr(),
                        .target = target.narrow(0, piece * rows, rows).mutable_data_ptr(),
                        .rows = rows,
                        .width = width,
                        .source_stride = width * ranks_,
                        .target_stride = width});
    }
    return copies;
  }

 private:
  static constexpr int kNothing = 101;

  [[nodiscard]] at::TensorOptions options() const { return on_device(of_.type); }
  // Small whole numbers, which all types can represent.
  [[nodiscard]] at::Tensor given(int rank, int round) const {
    return at::arange(of_.rows * of_.columns * ranks_, on_device(at::kLong))
        .add(7 * rank + 31 * round)
        .remainder(100)
        .to(of_.type)
        .view({of_.rows, of_.columns * ranks_});
  }

  Transposition of_;
  int ranks_;
  std::vector<at::Tensor> sources_;
  std::vector<at::Tensor> windows_;
};

void launch(Ranks& ranks, const Exchange& exchange, int rank) {
  std::vector<BlockCopy> to_peers;
  for (int to = 0; to < ranks.count(); ++to) {
    if (to == rank) continue;
    for (const BlockCopy& block : exchange.blocks(rank, to)) to_peers.push_back(block);
  }
  ranks.launch(rank, to_peers, exchange.blocks(rank, rank));
}

// Loading a kernel waits for kernels that are running. In a test those would wait for ranks that launch later, so the
// kernels are loaded before.
void load_kernels(const Exchange& exchange, int rank_count) {
  Ranks ranks(rank_count);
  ranks.stop();
  for (int rank = 0; rank < rank_count; ++rank) launch(ranks, exchange, rank);
  linked_cuda_device().delay(1);
  c10::cuda::device_synchronize();
}

// In each round another rank is late. Its peers must not write to it before it allows that, and must not proceed before
// its data has arrived.
void exchange_in_rounds(const Transposition& of, int rank_count) {
  constexpr int kRounds = 4;
  Exchange exchange(of, rank_count);
  load_kernels(exchange, rank_count);
  Ranks ranks(rank_count);
  std::vector<at::Tensor> before;
  std::vector<at::Tensor> after;
  for (int rank = 0; rank < rank_count; ++rank) {
    before.push_back(exchange.nothing());
    after.push_back(exchange.nothing());
  }
  for (int round = 0; round < kRounds; ++round) {
    for (int rank = 0; rank < rank_count; ++rank) exchange.begin(rank, round);
    c10::cuda::device_synchronize();
    for (int rank = 0; rank < rank_count; ++rank) {
      const c10::cuda::CUDAStreamGuard guard(ranks.stream(rank));
      const auto index = static_cast<std::size_t>(rank);
      if (rank == round % rank_count) linked_cuda_device().delay(kLateNanoseconds);
      before[index].copy_(exchange.window(rank));
      launch(ranks, exchange, rank);
      after[index].copy_(exchange.window(rank));
    }
    c10::cuda::device_synchronize();
    for (int rank = 0; rank < rank_count; ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      EXPECT_TRUE(at::equal(before[index], exchange.nothing())) << "rank " << rank << ", round " << round;
      EXPECT_TRUE(at::equal(after[index], exchange.expected(rank, round))) << "rank " << rank << ", round " << round;
      EXPECT_EQ(ranks.turn(rank), (std::array{round + 1, 0})) << "rank " << rank;
    }
  }
}

class PeerKernel : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { require_gpus(1, static_cast<int>(c10::cuda::device_count())); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, PeerKernel, testing::Values(1, 2, 3, 4, 8), testing::PrintToStringParamName());

TEST_P(PeerKernel, WritesWhatAllRanksGiveAndOnlyThenGoesOn) {
  exchange_in_rounds({.rows = 512, .columns = 96}, GetParam());
}

TEST_P(PeerKernel, TakesManyPieces) {
  exchange_in_rounds({.rows = 512, .columns = 16, .pieces = 32}, GetParam());
}

TEST_P(PeerKernel, TakesMorePiecesThanOneLaunch) {
  exchange_in_rounds({.rows = 512, .columns = 16, .pieces = 512}, GetParam());
}

TEST_P(PeerKernel, TakesMoreThanItsBlocksCopyAtOnce) {
  exchange_in_rounds({.rows = 4096, .columns = 256}, GetParam());
}

TEST_P(PeerKernel, TakesRowsOfAnyWidth) {
  exchange_in_rounds({.rows = 65, .columns = 3}, GetParam());
  exchange_in_rounds({.rows = 64, .columns = 5, .pieces = 4, .type = at::kHalf}, GetParam());
  exchange_in_rounds({.rows = 64, .columns = 7, .pieces = 2, .type = at::kByte}, GetParam());
  exchange_in_rounds({.rows = 1, .columns = 1, .type = at::kDouble}, GetParam());
}

class PeerKernelAlone : public GpuTest {};

TEST_F(PeerKernelAlone, IsFreedByTheStopWord) {
  Exchange exchange({.rows = 64, .columns = 64}, 2);
  load_kernels(exchange, 2);
  Ranks ranks(2);
  launch(ranks, exchange, 0);
  linked_cuda_device().delay(kLateNanoseconds);
  c10::cuda::getCurrentCUDAStream().synchronize();
  EXPECT_FALSE(ranks.stream(0).query()) << "a peer that never came was not waited for";
  ranks.stop();
  ranks.stream(0).synchronize();
}

}  // namespace
}  // namespace cp_pool
