#include "cp_core/run_case/counting_communicator.h"

#include <utility>

#include "cp_core/comm/peer/windows.h"

namespace cp_pool {
namespace {

std::int64_t bytes(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

class CountingCommunicator final : public Communicator, public PeerWindows {
 public:
  CountingCommunicator(std::shared_ptr<Communicator> target, std::int64_t& sent)
      : target_(std::move(target)), sent_(sent) {}

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

  [[nodiscard]] WorkPtr exchange(const at::Tensor& send, int to, at::Tensor& recv, int from,
                                 std::string_view what) override {
    count(send, to);
    return target_->exchange(send, to, recv, from, what);
  }
  [[nodiscard]] WorkPtr exchange_many(std::span<const at::Tensor> sends, int to, std::span<const at::Tensor> receives,
                                      int from, std::string_view what) override {
    for (const at::Tensor& tensor : sends) count(tensor, to);
    return target_->exchange_many(sends, to, receives, from, what);
  }
  [[nodiscard]] WorkPtr exchange_all(std::span<const Message> sends, std::span<const Message> receives,
                                     std::string_view what) override {
    for (const Message& message : sends) count(message.tensor, message.peer);
    return target_->exchange_all(sends, receives, what);
  }
  PeerWindows* windows() override { return target_->windows() == nullptr ? nullptr : this; }
  [[nodiscard]] WorkPtr put_all(std::span<const at::Tensor> windows, std::span<const at::Tensor> sources,
                                std::span<const Put> puts, std::string_view what) override {
    for (const Put& put : puts) {
      if (put.peer != rank()) sent_ += put.block.rows * put.block.width;
    }
    return target_->windows()->put_all(windows, sources, puts, what);
  }
  [[nodiscard]] WorkPtr all_gather(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    sent_ += bytes(in) * (size() - 1);
    return target_->all_gather(out, in, what);
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
  void count(const at::Tensor& tensor, int to) {
    if (to != rank()) sent_ += bytes(tensor);
  }

  std::shared_ptr<Communicator> target_;
  std::int64_t& sent_;
};

}  // namespace

CpGroups count_sent(const CpGroups& groups, std::int64_t& sent) {
  const auto counting = [&](const std::shared_ptr<Communicator>& group) -> std::shared_ptr<Communicator> {
    return group ? std::make_shared<CountingCommunicator>(group, sent) : nullptr;
  };
  return {counting(groups.cp), counting(groups.inner), counting(groups.outer)};
}

}  // namespace cp_pool
