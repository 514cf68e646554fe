// The door to everything that needs CUDA. It lives in a module of its own (libcp_core_cuda.so), so that CPU ranks never
// load the CUDA libraries: a process has no CUDA part until load_cuda_part().
//
// Everything given tensors works on the current stream of their device, and never waits for the device unless it says
// so.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include "cases/case.h"
#include "cp_core/attention/backend.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/comm/gpu_groups.h"
#include "cp_core/layout.h"
#include "cp_core/partition.h"
#include "cp_core/perf/captured_step.h"
#include "cp_core/perf/step_clock.h"
#include "cp_core/thd/copy_blocks.h"
#include "cp_core/thd/row_segments.h"
#include "cp_core/thd/sum_rows.h"

namespace c10d {
class Store;
}

namespace cp_pool {

// No CUDA on this machine, or not in this build. The text says what is missing.
class CudaUnavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct CudaMemory {
  std::size_t allocated_bytes = 0;  // by tensors
  std::size_t reserved_bytes = 0;   // by the caching allocator
  std::size_t device_bytes = 0;     // that the device has
  std::size_t free_bytes = 0;       // that nobody has; what this process caches is not among it
};

class CudaPart {
 public:
  CudaPart() = default;
  CudaPart(const CudaPart&) = delete;
  CudaPart& operator=(const CudaPart&) = delete;
  virtual ~CudaPart() = default;

  // --- device ---
  // Makes device `index` of the visible ones (CUDA_VISIBLE_DEVICES) this thread's, and creates its context. Throws
  // CudaUnavailable: no driver, driver too old, no such device.
  virtual void use_device(int index) = 0;
  [[nodiscard]] virtual int visible_devices() const = 0;  // 0 without a driver
  // Device `index` is in exclusive-process mode.
  [[nodiscard]] virtual bool takes_one_process(int index) const = 0;
  // e.g. "NVIDIA H200, compute capability 9.0, 140 GiB"
  [[nodiscard]] virtual std::string device_name(int index) const = 0;
  // Of CUDA, its driver, cuDNN and NCCL, as loaded.
  [[nodiscard]] virtual std::string versions() const = 0;
  [[nodiscard]] virtual CudaMemory memory() const = 0;
  // Gives cached memory back and seeds the generators: before every case.
  virtual void reset(std::uint64_t seed) = 0;
  // No other rank may have any of it open (Communicator::checked_barrier).
  virtual void release_cached_memory() = 0;
  // Keeps the current stream busy for so long: where a wait is missing, what should have waited overtakes.
  virtual void delay(std::int64_t nanoseconds) const = 0;
  // Such a delay, pseudo-random, if CP_POOL_DEBUG_STREAM_DELAYS or set_stream_delays turned them on (cuda/delay.h).
  // From any thread.
  virtual void random_delay() = 0;
  // From now on, here and in all communicators; 0 microseconds: none.
  virtual void set_stream_delays(std::uint64_t seed, std::uint64_t most_microseconds) = 0;

  // --- comm ---
  // make_gpu_groups of comm/gpu_groups.h. options.started: what EarlyStart::take_communicator (cuda/early_start.h) gave
  // for this prefix; null for none.
  [[nodiscard]] virtual CpGroups make_groups(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix,
                                             int rank, int size, std::chrono::milliseconds connect_timeout,
                                             const GpuGroupOptions& options) = 0;

  // --- attention ---
  // math, flash or cudnn, for tensors on the current device.
  [[nodiscard]] virtual std::unique_ptr<AttentionBackend> make_backend(Backend backend) const = 0;
  // Why the backend of this case cannot run it on the current device, as a sentence that quotes the library where it
  // is the library that refuses; empty if it can.
  [[nodiscard]] virtual std::string skip_reason(const Case& c) const = 0;

  // --- thd: as thd/copy_rows.h, thd/copy_blocks.h, thd/sum_rows.h and thd/merge_partial.h say ---
  virtual void copy_rows(const at::Tensor& source, at::Tensor& target, std::span<const RowCopy> copies) const = 0;
  virtual void copy_blocks(std::span<const BlockCopy> blocks) const = 0;
  // empty: sum_rows, else add_rows; segments: of the parts' rows, at least one part.
  virtual void sum_rows(at::Tensor& sum, bool empty, std::span<const SomeRows> parts,
                        std::span<const RowSegment> segments) const = 0;
  virtual void merge_partial(at::Tensor& out, at::Tensor& lse, const at::Tensor& part_out, const at::Tensor& part_lse,
                             std::span<const RowCopy> rows) const = 0;
  virtual void merge_sink(at::Tensor& out, at::Tensor& lse, const at::Tensor& sink,
                          std::span<const RowRange> rows) const = 0;
  [[nodiscard]] virtual at::Tensor sink_gradient(const at::Tensor& sink, const at::Tensor& lse, const at::Tensor& delta,
                                                 std::span<const RowRange> rows) const = 0;

  // --- perf ---
  // Waits for everything on the current device. For measurements: it knows no deadline.
  virtual void synchronize() const = 0;
  // What `step` enqueues on the current stream, and on those that it makes wait for it. `step` must have run before; it
  // throws where it waits for the device. Waits for the device itself before.
  [[nodiscard]] virtual std::unique_ptr<CapturedStep> capture(const std::function<void()>& step) const = 0;
  // CUDA events on the current stream.
  [[nodiscard]] virtual std::unique_ptr<StepClock> make_step_clock() const = 0;

  // --- verify ---
  // Element i of fp32 `values` gets number i of the stream of inputs that begins at `start` (verify/inputs.cpp): the
  // same bits as on the CPU.
  virtual void fill_nearly_normal(at::Tensor& values, std::uint64_t start) const = 0;
  // The sum of word_term (verify/word_sum.h) over a contiguous tensor's bytes. Waits for the device.
  [[nodiscard]] virtual std::uint64_t sum_words(const at::Tensor& tensor) const = 0;
};

// Loads the module beside the running program (or on the library path), once. Throws CudaUnavailable: not built, or a
// library is missing. From any thread: loading takes most of a second, and can overlap other work.
CudaPart& load_cuda_part();

// For programs that link the part instead of loading it. It must live as long as the process.
void use_cuda_part(CudaPart& part);

// The part loaded or given. Throws CudaUnavailable if there is none: a CUDA tensor in a process that did not load it.
CudaPart& cuda_part();

// Stands between operations on the current stream of a device: a random_delay() on a GPU, nothing on a CPU.
void delay_point(const at::Device& device);

}  // namespace cp_pool
