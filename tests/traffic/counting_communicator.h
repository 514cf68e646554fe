// A communicator that counts what its rank sends to others, for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "cp_core/comm/communicator.h"

namespace cp_pool::test {

// Bytes of this rank's own data that have to reach other ranks, once for each: the least that any way to carry the
// operation out makes a rank send. One counter may serve several groups.
class CountingCommunicator final : public Communicator {
 public:
  CountingCommunicator(std::shared_ptr<Communicator> target, std::int64_t& sent)
      : target_(std::move(target)), sent_(sent) {}

  [[nodiscard]] int rank() const override { return target_->rank(); }
  [[nodiscard]] int size() const override { return target_->size(); }
  void set_deadline(Clock::time_point deadline) override { target_->set_deadline(deadline); }
  void abort() override { target_->abort(); }
  void checked_barrier(std::int64_t tag, std::chrono::milliseconds limit) override {
    target_->checked_barrier(tag, limit);
  }

  [[nodiscard]] WorkPtr exchange(const at::Tensor& send, int to, at::Tensor& recv, int from,
                                 std::string_view what) override {
    if (to != rank()) sent_ += bytes(send);
    return target_->exchange(send, to, recv, from, what);
  }
  [[nodiscard]] WorkPtr all_gather(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    sent_ += bytes(in) * (size() - 1);
    return target_->all_gather(out, in, what);
  }
  [[nodiscard]] WorkPtr all_to_all(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    sent_ += bytes(in) / size() * (size() - 1);
    return target_->all_to_all(out, in, what);
  }
  [[nodiscard]] WorkPtr reduce_scatter(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    sent_ += bytes(in) / size() * (size() - 1);
    return target_->reduce_scatter(out, in, what);
  }
  [[nodiscard]] WorkPtr all_reduce(at::Tensor& inout, ReduceOp op, std::string_view what) override {
    sent_ += bytes(inout) * (size() - 1);
    return target_->all_reduce(inout, op, what);
  }

 private:
  static std::int64_t bytes(const at::Tensor& tensor) { return static_cast<std::int64_t>(tensor.nbytes()); }

  std::shared_ptr<Communicator> target_;
  std::int64_t& sent_;
};

}  // namespace cp_pool::test
