#include "cp_core/comm/wrapped_communicator.h"

#include <fmt/format.h>

namespace cp_pool {
namespace {

std::int64_t bytes(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

}  // namespace

Communicator::WorkPtr WrappedCommunicator::exchange_many(std::span<const at::Tensor> sends, int to,
                                                         std::span<const at::Tensor> receives, int from,
                                                         std::string_view what) {
  std::int64_t sent = 0;
  for (const at::Tensor& tensor : sends) sent += to == rank() ? 0 : bytes(tensor);
  return carry_out({fmt::format("exchange with ranks {} (to) and {} (from) of", to, from), what, sent},
                   [&] { return target_->exchange_many(sends, to, receives, from, what); });
}

Communicator::WorkPtr WrappedCommunicator::exchange_all(std::span<const Message> sends,
                                                        std::span<const Message> receives, std::string_view what) {
  std::int64_t sent = 0;
  for (const Message& message : sends) sent += message.peer == rank() ? 0 : bytes(message.tensor);
  return carry_out({"all_to_all on", what, sent}, [&] { return target_->exchange_all(sends, receives, what); });
}

Communicator::WorkPtr WrappedCommunicator::put_all(std::span<const at::Tensor> windows,
                                                   std::span<const at::Tensor> sources, std::span<const Put> puts,
                                                   std::string_view what) {
  std::int64_t sent = 0;
  for (const Put& put : puts) sent += put.peer == rank() ? 0 : put.block.rows * put.block.width;
  return carry_out({"put on", what, sent}, [&] { return target_->windows()->put_all(windows, sources, puts, what); });
}

Communicator::WorkPtr WrappedCommunicator::all_gather(at::Tensor& out, const at::Tensor& in, std::string_view what) {
  return carry_out({"all_gather on", what, bytes(in) * (size() - 1)},
                   [&] { return target_->all_gather(out, in, what); });
}

Communicator::WorkPtr WrappedCommunicator::reduce_scatter(at::Tensor& out, const at::Tensor& in,
                                                          std::string_view what) {
  return carry_out({"reduce_scatter on", what, bytes(in) / size() * (size() - 1)},
                   [&] { return target_->reduce_scatter(out, in, what); });
}

Communicator::WorkPtr WrappedCommunicator::all_reduce(at::Tensor& inout, ReduceOp op, std::string_view what) {
  return carry_out({"all_reduce on", what, bytes(inout) * (size() - 1)},
                   [&] { return target_->all_reduce(inout, op, what); });
}

namespace {

class CountingCommunicator final : public WrappedCommunicator {
 public:
  CountingCommunicator(std::shared_ptr<Communicator> target, std::int64_t& sent)
      : WrappedCommunicator(std::move(target)), sent_(sent) {}

 private:
  WorkPtr carry_out(const Operation& operation, const std::function<WorkPtr()>& start) override {
    sent_ += operation.sent;
    return start();
  }

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
