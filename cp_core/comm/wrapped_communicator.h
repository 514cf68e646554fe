// A communicator that carries out its operations through another one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/windows.h"

namespace cp_pool {

class WrappedCommunicator : public Communicator, public PeerWindows {
 public:
  [[nodiscard]] int rank() const override { return target_->rank(); }
  [[nodiscard]] int size() const override { return target_->size(); }
  [[nodiscard]] std::string description() const override { return target_->description(); }
  void set_deadline(Clock::time_point deadline) override { target_->set_deadline(deadline); }
  void abort() override { target_->abort(); }
  void synchronize(std::string_view what) override { target_->synchronize(what); }
  void checked_barrier(std::int64_t tag, std::chrono::milliseconds limit) override {
    target_->checked_barrier(tag, limit);
  }
  [[nodiscard]] std::vector<BegunInGroup> begun() const override { return target_->begun(); }
  PeerWindows* windows() override { return target_->windows() == nullptr ? nullptr : this; }

  WorkPtr exchange_many(std::span<const at::Tensor> sends, int to, std::span<const at::Tensor> receives, int from,
                        std::string_view what) override;
  WorkPtr exchange_all(std::span<const Message> sends, std::span<const Message> receives,
                       std::string_view what) override;
  WorkPtr put_all(std::span<const at::Tensor> windows, std::span<const at::Tensor> sources, std::span<const Put> puts,
                  std::string_view what) override;
  WorkPtr all_gather(at::Tensor& out, const at::Tensor& in, std::string_view what) override;
  WorkPtr reduce_scatter(at::Tensor& out, const at::Tensor& in, std::string_view what) override;
  WorkPtr all_reduce(at::Tensor& inout, ReduceOp op, std::string_view what) override;

 protected:
  explicit WrappedCommunicator(std::shared_ptr<Communicator> target) : target_(std::move(target)) {}

  struct Operation {
    std::string name;       // followed by a group's name: "all_gather on", "exchange with ranks 1 (to) and 2 (from) of"
    std::string_view what;  // the step
    // The bytes of this rank's own data that have to reach other ranks, counted once for each of those ranks. This is
    // the least that a rank has to send, however the operation is carried out.
    std::int64_t sent = 0;
  };
  // Every operation passes through here. start: starts it on the target.
  virtual WorkPtr carry_out(const Operation& operation, const std::function<WorkPtr()>& start) = 0;
  [[nodiscard]] Communicator& target() const { return *target_; }

 private:
  std::shared_ptr<Communicator> target_;
};

// Wraps every communicator of `groups`, which still carry out the operations. Each operation adds to `sent`, on the
// calling thread, the bytes of this rank's own data that have to reach other ranks, counted once for each of those
// ranks. This is the least that a rank has to send, however the operation is carried out. A barrier adds nothing.
// `sent` must outlive the groups.
CpGroups count_sent(const CpGroups& groups, std::int64_t& sent);

}  // namespace cp_pool
