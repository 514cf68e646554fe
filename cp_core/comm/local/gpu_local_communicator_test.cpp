// LocalCommunicator between ranks that share a GPU, each with a stream of its own. Delays keep streams busy, so that
// work which does not wait for them comes too early.
#include <array>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <gmock/gmock.h>

#include "cp_core/comm/peer/windows.h"
#include "cp_core/testing/busy_gpu.h"
#include "cp_core/testing/gpu_fixture.h"
#include "cp_core/testing/ranks_on_threads.h"

namespace cp_pool {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::chrono::seconds kLimit{50};
constexpr std::int64_t kElements = 1 << 16;

at::Device gpu() {
  return {at::kCUDA, 0};
}

at::Tensor on_gpu(double value, std::int64_t elements = kElements, at::ScalarType dtype = at::kFloat) {
  return at::full({elements}, value, at::TensorOptions(dtype).device(gpu()));
}

at::Tensor numbers(std::int64_t begin, std::int64_t end, std::int64_t step = 1) {
  return at::arange(begin, end, step, at::TensorOptions(at::kFloat).device(gpu()));
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

TEST_F(GpuLocalCommunicator, MovesAndReducesAsOnACpu) {
  on_streams_of_their_own(4, [](const CpGroups& groups, int rank) {
    const int next = (rank + 1) % 4;
    const int previous = (rank + 3) % 4;
    at::Tensor received = on_gpu(-1);
    groups.cp->exchange(on_gpu(rank), next, received, previous, "turn")->wait();
    EXPECT_TRUE(is_all(received, previous));

    const std::array sends{on_gpu(rank, 3, at::kBFloat16), on_gpu(0, 0), on_gpu(rank + 10, 5)};
    const std::array receives{on_gpu(-1, 3, at::kBFloat16), on_gpu(0, 0), on_gpu(-1, 5)};
    groups.cp->exchange_many(sends, next, receives, previous, "turn of several")->wait();
    EXPECT_TRUE(is_all(receives[0], previous) && is_all(receives[2], previous + 10));

    std::vector<Communicator::Message> messages_out;
    std::vector<Communicator::Message> messages_in;
    for (int peer = 0; peer < 4; ++peer) {
      if (peer == rank) continue;
      messages_out.push_back({.tensor = on_gpu(10 * rank + peer), .peer = peer});
      messages_in.push_back({.tensor = on_gpu(-1), .peer = peer});
    }
    groups.cp->exchange_all(messages_out, messages_in, "with all")->wait();
    for (const auto& [tensor, peer] : messages_in) EXPECT_TRUE(is_all(tensor, 10 * peer + rank));

    at::Tensor gathered = on_gpu(-1, 4);
    groups.cp->all_gather(gathered, on_gpu(rank, 1), "gather")->wait();
    EXPECT_TRUE(gathered.equal(numbers(0, 4)));

    at::Tensor part = on_gpu(-1, 1);
    groups.cp->reduce_scatter(part, numbers(0, 4), "reduce")->wait();
    EXPECT_TRUE(is_all(part, 4 * rank));

    at::Tensor largest = on_gpu(rank == 2 ? 5 : -1);
    groups.cp->all_reduce(largest, ReduceOp::max, "largest")->wait();
    EXPECT_TRUE(is_all(largest, 5));
  });
}

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

TEST_F(GpuLocalCommunicator, OrdersTheStreamOfTheWaitBehindThatOfTheCall) {
  on_streams_of_their_own(2, [](const CpGroups& groups, int rank) {
    at::Tensor sent = on_gpu(rank);
    at::Tensor received = on_gpu(-1);
    delay(50ms);
    received.fill_(-2);
    const auto work = groups.cp->exchange(sent, 1 - rank, received, 1 - rank, "turn");
    {
      const c10::cuda::CUDAStreamGuard other(c10::cuda::getStreamFromPool());
      work->wait();
      sent.fill_(-3);
    }
    linked_cuda_device().synchronize();
    EXPECT_TRUE(is_all(received, 1 - rank)) << "rank " << rank;
  });
}

TEST_F(GpuLocalCommunicator, KeepsTheMemoryOfAMessageUntilItIsRead) {
  on_streams_of_their_own(2, [](const CpGroups& groups, int rank) {
    at::Tensor received = on_gpu(-1);
    const auto work = groups.cp->exchange(on_gpu(rank), 1 - rank, received, 1 - rank, "turn");
    if (rank == 1) delay(50ms);
    work->wait();
    groups.cp->checked_barrier(0, kLimit);  // after it, rank 1 has enqueued its copy and dropped the message
    std::vector<at::Tensor> later;
    for (int i = 0; rank == 0 && i < 16; ++i) later.push_back(on_gpu(-2));
    groups.cp->synchronize("what was received");
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

TEST_F(GpuLocalCommunicator, WaitsInSynchronizeForTheCurrentStream) {
  on_streams_of_their_own(1, [](const CpGroups& groups, int) {
    c10::cuda::CUDAEvent end;
    delay(2s);
    end.record(c10::cuda::getCurrentCUDAStream());
    EXPECT_FALSE(end.query());
    groups.cp->synchronize("a phase");
    EXPECT_TRUE(end.query());
  });
}

TEST_F(GpuLocalCommunicator, BoundsSynchronizeByTheDeadlineAndNamesThePhase) {
  on_streams_of_their_own(1, [](const CpGroups& groups, int) {
    std::optional<CommError> error;
    groups.cp->set_deadline(Communicator::Clock::now() + 5ms);
    delay(2s);
    try {
      groups.cp->synchronize("backward");
    } catch (const CommError& thrown) {
      error = thrown;
    }
    linked_cuda_device().synchronize();
    ASSERT_TRUE(error) << "no CommError";
    EXPECT_EQ(error->kind(), CommError::Kind::timeout);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("rank 0 of 1"), HasSubstr("backward")));
  });
}

}  // namespace
}  // namespace cp_pool
