#include "cp_core/cuda/device.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <c10/cuda/CUDAEvent.h>
#include <gmock/gmock.h>

#include "cp_core/cuda/delay.h"
#include "cp_core/testing/busy_gpu.h"
#include "cp_core/testing/gpu_fixture.h"

namespace cp_pool::cuda {
namespace {

using testing::HasSubstr;

class Device : public GpuTest {};

TEST_F(Device, SaysWhatItIs) {
  EXPECT_THAT(device_name(0), testing::AllOf(HasSubstr("compute capability"), HasSubstr("GiB")));
  EXPECT_THAT(versions(), testing::AllOf(HasSubstr("CUDA "), HasSubstr("cuDNN "), HasSubstr("NCCL ")));
}

TEST_F(Device, OfANumberThatIsNotThereIsRefused) {
  EXPECT_THROW(use_device(visible_devices()), CudaUnavailable);
}

TEST_F(Device, GivesTheSameRandomNumbersAfterAReset) {
  reset(1234);
  const at::Tensor first = at::rand({1000}, at::kCUDA).cpu();
  reset(1234);
  EXPECT_TRUE(at::equal(at::rand({1000}, at::kCUDA).cpu(), first));
  reset(1235);
  EXPECT_FALSE(at::equal(at::rand({1000}, at::kCUDA).cpu(), first));
}

TEST_F(Device, GivesCachedMemoryBackInAReset) {
  at::Tensor large = at::empty({1 << 28}, at::TensorOptions().device(at::kCUDA).dtype(at::kByte));
  EXPECT_GE(memory().allocated_bytes, std::size_t{1} << 28U);
  large.reset();
  EXPECT_GE(memory().reserved_bytes, std::size_t{1} << 28U);
  reset(1);
  EXPECT_LT(memory().reserved_bytes, std::size_t{1} << 28U);
}

// The time that the work takes on the device's current stream.
template <typename Work>
float milliseconds_of(const Work& work) {
  c10::cuda::CUDAEvent begin(cudaEventDefault);
  c10::cuda::CUDAEvent end(cudaEventDefault);
  begin.record();
  work();
  end.record();
  end.synchronize();
  return begin.elapsed_time(end);
}

TEST_F(Device, IsKeptBusyByADelay) {
  const float took = milliseconds_of([] { test::keep_gpu_busy(20'000'000); });
  EXPECT_GE(took, 20.0F);
  EXPECT_LT(took, 2000.0F);
}

TEST_F(Device, HasRandomDelaysWhileTheyAreTurnedOn) {
  StreamDelays delays;
  const auto many = [&delays] {
    for (int i = 0; i < 400; ++i) delays.next();
  };
  // A busy host may be slow to launch, but not every time.
  const auto least = [&many] {
    float out = milliseconds_of(many);
    for (int i = 1; i < 5; ++i) out = std::min(out, milliseconds_of(many));
    return out;
  };
  const float before = least();
  set_stream_delays({.seed = 3, .most_microseconds = 2000});
  const float delayed = milliseconds_of(many);
  EXPECT_GT(delayed, 20.0F) << "one in four of 400 operations, by 1 ms on average";
  EXPECT_LT(before, delayed / 2);
  set_stream_delays({});
  EXPECT_LT(least(), delayed / 2);
}

}  // namespace
}  // namespace cp_pool::cuda
