// What the tests of the GPU ranks' communicators share.
#pragma once

#include <functional>
#include <optional>

#include <ATen/ops/full.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include "cp_core/cuda/gpu_ranks.h"
#include "cp_core/cuda/gpu_test.h"

namespace cp_pool {

constexpr std::chrono::seconds kLongEnough{20};

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

inline double milliseconds_since(Communicator::Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Communicator::Clock::now() - start).count();
}

// Runs on as many GPUs as its parameter says.
class NcclRanks : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { require_gpus(GetParam(), count_gpus()); }
};

// Runs on two GPUs.
class NcclPair : public testing::Test {
 protected:
  void SetUp() override { require_gpus(2, count_gpus()); }
};

class NcclFour : public testing::Test {
 protected:
  void SetUp() override { require_gpus(4, count_gpus()); }
};

// Neighbours.
struct Ring {
  explicit Ring(const GpuRank& rank)
      : next((rank.rank + 1) % rank.size), previous((rank.rank + rank.size - 1) % rank.size) {}
  int next;
  int previous;
};

}  // namespace cp_pool
