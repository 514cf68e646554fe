#include <memory>
#include <optional>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "cp_core/comm/communicator.h"

namespace cp_pool {
namespace {

c10::Stream current_stream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Copies that were enqueued on the stream that was current before.
class EnqueuedWork final : public Work {
 public:
  explicit EnqueuedWork(const at::Device& device) : device_(device) {
    if (device.is_cuda()) end_.emplace(device.type()).record(current_stream(device));
  }
  void wait() override {
    if (end_) end_->block(current_stream(device_));
  }

 private:
  at::Device device_;
  std::optional<c10::Event> end_;
};

class SingleRank final : public Communicator {
 public:
  explicit SingleRank(const at::Device& device) : device_(device) {}

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] std::string description() const override { return "one rank"; }
  void set_deadline(Clock::time_point /*deadline*/) override {}
  void abort() override {}
  void checked_barrier(std::int64_t /*tag*/, std::chrono::milliseconds /*limit*/) override {}
  void synchronize(std::string_view /*what*/) override {
    if (device_.is_cuda()) current_stream(device_).synchronize();
  }

  WorkPtr exchange_many(std::span<const at::Tensor> sends, int /*to*/, std::span<const at::Tensor> receives,
                        int /*from*/, std::string_view /*what*/) override {
    for (std::size_t i = 0; i < sends.size(); ++i) receives[i].view(-1).copy_(sends[i].view(-1));
    return std::make_unique<EnqueuedWork>(device_);
  }
  WorkPtr all_gather(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    return exchange(in, 0, out, 0, what);
  }
  WorkPtr reduce_scatter(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    return exchange(in, 0, out, 0, what);
  }
  WorkPtr all_reduce(at::Tensor& /*inout*/, ReduceOp /*op*/, std::string_view /*what*/) override {
    return std::make_unique<EnqueuedWork>(device_);
  }

 private:
  at::Device device_;
};

}  // namespace

CpGroups single_rank_groups(const at::Device& device) {
  return {.cp = std::make_shared<SingleRank>(device), .inner = nullptr, .outer = nullptr};
}

}  // namespace cp_pool
