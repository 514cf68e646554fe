// LocalCommunicator between ranks that share a GPU, each with a stream of its own. Delays keep streams busy, so that
// work which does not wait for them comes too early.
#include <array>
#include <functional>

#include <ATen/ops/full.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>

#include "cp_core/comm/windows.h"
#include "cp_core/testing/busy_gpu.h"
#include "cp_core/testing/gpu_fixture.h"
#include "cp_core/testing/ranks_on_threads.h"

namespace cp_pool {
namespace {

using namespace std::chrono_literals;
constexpr std::chrono::seconds kLimit{50};
constexpr std::int64_t kElements = 1 << 16;

at::Device gpu() {
  return {at::kCUDA, 0};
}

at::Tensor on_gpu(double value, std::int64_t elements = kElements) {
  return at::full({elements}, value, at::TensorOptions(at::kFloat).device(gpu()));
}

bool is_all(const at::Tensor& tensor, double value) {
  return tensor.eq(value).all().item<bool>();
}

void delay(std::chrono::nanoseconds time) {
  test::keep_gpu_busy(time.count());
}

void on_streams_of_their_own(int size, const std::function<void(const CpGroups&, int rank)>& fn) {
  const auto on_own_stream = [&fn](const CpGroups& groups, int rank) {
    linked_cuda_device().use_device(0);
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    // Loads the kernels now, since loading waits for the device and would hide a missing wait.
    is_all(on_gpu(0), 0);
    delay(1ns);
    fn(groups, rank);
  };
  run_ranks(size, on_own_stream, kLimit, {.device = gpu(), .windows = true});
}

class GpuLocalCommunicator : public GpuTest {};

TEST_F(GpuLocalCommunicator, HandsOverWhatTheSendersStreamHasYetToWrite) {
  on_streams_of_their_own(2, [](const CpGroups& groups, int rank) {
    at::Tensor sent = on_gpu(-1);
    at::Tensor received = on_gpu(-1);
    if (rank == 0) delay(50ms);
    sent.fill_(rank);
    groups.cp->exchange(sent, 1 - rank, received, 1 - rank, "turn")->wait();
    EXPECT_TRUE(is_all(received, 1 - rank)) << "rank " << rank;
  });
}

// Each rank fills its half of two rows of a peer's window with data that its stream has not written yet.
TEST_F(GpuLocalCommunicator, WritesRectanglesIntoWindowsInWaitAndBehindTheSendersStream) {
  constexpr std::int64_t kHalf = kElements / 4;  // elements in half a row
  constexpr std::int64_t kBytes = kHalf * static_cast<std::int64_t>(sizeof(float));
  on_streams_of_their_own(2, [](const CpGroups& groups, int rank) {
    ASSERT_NE(groups.cp->windows(), nullptr);
    at::Tensor source = on_gpu(-1, 2 * kHalf);
    const std::array windows{on_gpu(-2, 1), on_gpu(-2)};
    delay(50ms);
    source.fill_(rank);
    const PeerWindows::Put put{.peer = 1 - rank,
                               .window = 1,
                               .first = rank * kBytes,
                               .block = {.source = source.const_data_ptr(),
                                         .rows = 2,
                                         .width = kBytes,
                                         .source_stride = kBytes,
                                         .target_stride = 2 * kBytes}};
    const auto work = groups.cp->windows()->put_all(windows, {&source, 1}, {&put, 1}, "turn");
    source.fill_(-3);
    groups.cp->synchronize("what is sent");
    groups.cp->checked_barrier(0, kLimit);  // after it, the peer has sent
    EXPECT_TRUE(is_all(windows[1], -2)) << "rank " << rank;
    work->wait();
    const at::Tensor halves = windows[1].view({2, 2, kHalf});
    EXPECT_TRUE(is_all(halves.select(1, 1 - rank), 1 - rank)) << "rank " << rank;
    EXPECT_TRUE(is_all(halves.select(1, rank), -2)) << "rank " << rank;
    EXPECT_TRUE(is_all(windows[0], -2)) << "rank " << rank;
  });
}

TEST_F(GpuLocalCommunicator, IsOfOneRankAnotherThatWaitsForTheCurrentStream) {
  const CpGroups alone = single_rank_groups(gpu());
  c10::cuda::CUDAEvent end;
  at::Tensor got = on_gpu(-1);
  delay(2s);
  const auto work = alone.cp->exchange(on_gpu(3), 0, got, 0, "turn");
  end.record(c10::cuda::getCurrentCUDAStream());
  EXPECT_FALSE(end.query());
  {
    const c10::cuda::CUDAStreamGuard other(c10::cuda::getStreamFromPool());
    work->wait();
    EXPECT_TRUE(is_all(got, 3));
  }
  alone.cp->synchronize("a phase");
  EXPECT_TRUE(end.query());
}

}  // namespace
}  // namespace cp_pool
