// The module's only export: its CudaPart.
#include <mutex>

#include "cp_core/attention/cuda_backends.h"
#include "cp_core/cuda/cuda_part.h"
#include "cp_core/cuda/delay.h"
#include "cp_core/cuda/device.h"
#include "cp_core/perf/cuda_captured_step.h"
#include "cp_core/perf/cuda_step_clock.h"
#include "cp_core/thd/row_kernels.h"
#include "cp_core/verify/cuda_kernels.h"

namespace cp_pool {
namespace {

class Part final : public CudaPart {
 public:
  void use_device(int index) override { cuda::use_device(index); }
  [[nodiscard]] int visible_devices() const override { return cuda::visible_devices(); }
  [[nodiscard]] bool takes_one_process(int index) const override { return cuda::takes_one_process(index); }
  [[nodiscard]] std::string device_name(int index) const override { return cuda::device_name(index); }
  [[nodiscard]] std::string versions() const override { return cuda::versions(); }
  [[nodiscard]] CudaMemory memory() const override { return cuda::memory(); }
  void reset(std::uint64_t seed) override { cuda::reset(seed); }
  void release_cached_memory() override { cuda::release_cached_memory(); }
  void delay(std::int64_t nanoseconds) const override { cuda::delay(nanoseconds); }
  void random_delay() override {
    const std::lock_guard lock(delays_mutex_);
    delays_.next();
  }
  void set_stream_delays(std::uint64_t seed, std::uint64_t most_microseconds) override {
    cuda::set_stream_delays({.seed = seed, .most_microseconds = most_microseconds});
  }

  [[nodiscard]] CpGroups make_groups(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix, int rank,
                                     int size, std::chrono::milliseconds connect_timeout,
                                     const GpuGroupOptions& options) override {
    {
      const std::lock_guard lock(delays_mutex_);
      delays_ = cuda::StreamDelays::from_environment(kOfAttention + static_cast<std::uint64_t>(rank));
    }
    return make_gpu_groups(store, prefix, rank, size, connect_timeout, options);
  }

  [[nodiscard]] std::unique_ptr<AttentionBackend> make_backend(Backend backend) const override {
    return make_cuda_backend(backend);
  }
  [[nodiscard]] std::string skip_reason(const Case& c) const override { return cuda_backend_skip_reason(c); }

  void copy_rows(const at::Tensor& source, at::Tensor& target, std::span<const RowCopy> copies) const override {
    cuda::copy_rows(source, target, copies);
  }
  void copy_blocks(std::span<const BlockCopy> blocks) const override { cuda::copy_blocks(blocks); }
  void sum_rows(at::Tensor& sum, bool empty, std::span<const SomeRows> parts,
                std::span<const RowSegment> segments) const override {
    cuda::sum_rows(sum, empty, parts, segments);
  }
  void merge_partial(at::Tensor& out, at::Tensor& lse, const at::Tensor& part_out, const at::Tensor& part_lse,
                     std::span<const RowCopy> rows) const override {
    cuda::merge_partial(out, lse, part_out, part_lse, rows);
  }
  void merge_sink(at::Tensor& out, at::Tensor& lse, const at::Tensor& sink,
                  std::span<const RowRange> rows) const override {
    cuda::merge_sink(out, lse, sink, rows);
  }
  [[nodiscard]] at::Tensor sink_gradient(const at::Tensor& sink, const at::Tensor& lse, const at::Tensor& delta,
                                         std::span<const RowRange> rows) const override {
    return cuda::sink_gradient(sink, lse, delta, rows);
  }

  void synchronize() const override { cuda::synchronize(); }
  [[nodiscard]] std::unique_ptr<CapturedStep> capture(const std::function<void()>& step) const override {
    return cuda::capture(step);
  }
  [[nodiscard]] std::unique_ptr<StepClock> make_step_clock() const override { return cuda::make_step_clock(); }

  void fill_nearly_normal(at::Tensor& values, std::uint64_t start) const override {
    verify::fill_nearly_normal_cuda(values, start);
  }
  [[nodiscard]] std::uint64_t sum_words(const at::Tensor& tensor) const override {
    return verify::sum_words_cuda(tensor);
  }

 private:
  // Other delays than the rank's communicators have.
  static constexpr std::uint64_t kOfAttention = 1U << 16U;

  std::mutex delays_mutex_;
  cuda::StreamDelays delays_;
};

}  // namespace
}  // namespace cp_pool

extern "C" __attribute__((visibility("default"))) cp_pool::CudaPart* cp_pool_cuda_part() {
  // Lives as long as the process: CUDA is torn down before static objects are.
  static auto* part = new cp_pool::Part();
  return part;
}
