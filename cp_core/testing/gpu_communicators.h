// Helpers and fixtures for the tests of communicators of GPU ranks.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>

#include <ATen/ops/full.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/perf/cuda_steps.h"
#include "cp_core/testing/gpu_fixture.h"
#include "cp_core/testing/gpu_ranks.h"

namespace cp_pool {

constexpr std::chrono::seconds kLongEnough{20};
// From an abort, or the death of a peer, to the end of the wait, at most: less than the wait would take otherwise,
// which is kLongEnough, or kBusyNanoseconds where a peer's device is busy.
constexpr double kFreedMilliseconds = 10'000;
constexpr std::int64_t kBusyNanoseconds = 6'000'000'000;
constexpr double kFreedBeforeBusyEndsMilliseconds = 5500;

inline at::TensorOptions on_gpu(at::ScalarType dtype = at::kFloat) {
  return at::TensorOptions().dtype(dtype).device(at::kCUDA, c10::cuda::current_device());
}

inline at::Tensor filled(at::IntArrayRef shape, double value, at::ScalarType dtype = at::kFloat) {
  return at::full(shape, value, on_gpu(dtype));
}

inline std::optional<CommError> error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const CommError& error) {
    return error;
  }
  return std::nullopt;
}

inline void expect_error(const std::optional<CommError>& error, CommError::Kind kind,
                         const testing::Matcher<std::string>& text = testing::_) {
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), kind);
  EXPECT_THAT(std::string(error->what()), text);
}

inline double milliseconds_since(Communicator::Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Communicator::Clock::now() - start).count();
}

// How data moves between ranks: by peer copies (peer_link.h), by NCCL only, or by peer copies on one GPU that all ranks
// share.
enum class Way { peer_copies, nccl, shared };

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's name
inline void PrintTo(Way way, std::ostream* out) {
  *out << (way == Way::nccl ? "nccl" : way == Way::shared ? "shared" : "peer_copies");
}

// Selects the way for ranks that are forked afterwards.
inline void take(Way way) {
  setenv("CP_POOL_PEER_COPIES", way == Way::nccl ? "off" : "on", /*overwrite=*/1);
  share_one_gpu(way == Way::shared);
}

// The parameter is the number of ranks and the way. Each rank has a GPU of its own unless they share one.
class NcclRanks : public testing::TestWithParam<std::tuple<int, Way>> {
 protected:
  void SetUp() override {
    const Way way = std::get<1>(GetParam());
    require_gpus(way == Way::shared ? 1 : ranks(), count_gpus());
    take(way);
  }
  static int ranks() { return std::get<0>(GetParam()); }
};

inline auto ranks_and_ways() {
  return testing::Combine(testing::Values(1, 2, 4), testing::Values(Way::peer_copies, Way::nccl, Way::shared));
}

// Tests on kRanks GPUs. With peer copies, ranks share a GPU if there are too few.
template <int kRanks, Way kWay>
class NcclFixture : public testing::Test {
 protected:
  void SetUp() override {
    require_gpus(kWay == Way::nccl ? kRanks : 1, count_gpus());
    take(count_gpus() < kRanks ? Way::shared : kWay);
  }
};
class NcclPair : public NcclFixture<2, Way::peer_copies> {};
class NcclPairAlone : public NcclFixture<2, Way::nccl> {};
class NcclFour : public NcclFixture<4, Way::peer_copies> {};

// Tests on one GPU that all ranks share.
class Sharing : public testing::Test {
 protected:
  void SetUp() override {
    require_gpus(1, count_gpus());
    take(Way::shared);
  }
};
class SharingPair : public Sharing {};
class SharingFour : public Sharing {};

// Tests with peer copies on two ranks with a GPU each.
class TwoGpus : public testing::Test {
 protected:
  void SetUp() override {
    require_gpus(2, count_gpus());
    take(Way::peer_copies);
  }
};

// Captures the step as a graph and replays it 20 times. Calls forget() before and check(number) after each replay.
inline void replay_captured(const CpGroups& groups, const std::function<void()>& step,
                            const std::function<void()>& forget, const std::function<void(int)>& check) {
  const std::unique_ptr<CapturedStep> graph = cuda_part<CudaSteps>().capture(step);
  for (int i = 0; i < 20; ++i) {
    forget();
    graph->replay();
    groups.cp->synchronize("replay");
    check(i);
  }
}

// The neighbours of a rank in the ring of all ranks.
struct Neighbours {
  explicit Neighbours(const GpuRank& rank)
      : next((rank.rank + 1) % rank.size), previous((rank.rank + rank.size - 1) % rank.size) {}
  int next;
  int previous;
};

}  // namespace cp_pool
