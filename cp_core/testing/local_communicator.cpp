#include "cp_core/testing/local_communicator.h"

#include <algorithm>
#include <compare>
#include <condition_variable>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include "cp_core/comm/peer/puts.h"
#include "cp_core/comm/windows.h"
#include "cp_core/thd/copy_rows.h"

namespace cp_pool {
namespace {

using Clock = Communicator::Clock;
using Put = PeerWindows::Put;

c10::Stream current_stream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Marks the end of all work that a GPU's current stream has so far. Does nothing on a CPU.
class StreamMark {
 public:
  explicit StreamMark(const at::Device& device) {
    if (device.is_cuda()) event_.emplace(device.type()).record(current_stream(device));
  }
  // Makes the calling thread's current stream wait for the mark.
  void order_current_stream() const {
    if (event_) event_->block(current_stream(event_->device()));
  }

 private:
  std::optional<c10::Event> event_;
};

// The place of a message: the group, named by its kind and its first rank, and the operation's number in the group,
// which is below zero for a barrier.
struct Address {
  GroupTag group;
  int first = 0;
  std::int64_t number = 0;
  int from = 0;
  int to = 0;
  auto operator<=>(const Address&) const = default;
};

struct Parcel {
  std::string operation;
  std::vector<at::Tensor> data;  // copies that belong to the message
  std::vector<Put> puts;         // for put_all: from the only tensor of the data
  StreamMark written;            // on the sender's stream, after the copies
};

// What all ranks share. Messages wait in it until their receivers take them.
class Hub {
 public:
  Hub(int ranks, LocalOptions local_options) : size(ranks), options(std::move(local_options)) {}

  void post(const Address& address, Parcel parcel) {
    {
      const std::lock_guard lock(mutex_);
      messages_.insert_or_assign(address, std::move(parcel));
    }
    changed_.notify_all();
  }

  // Waits for a message and returns it, or nullopt if it is not there at the deadline. Throws CommError when aborted.
  std::optional<Parcel> take(const Address& address, Clock::time_point deadline) {
    if (options.turn) options.turn->unlock();
    std::unique_lock lock(mutex_);
    const bool there =
        changed_.wait_until(lock, deadline, [&] { return aborted_ || messages_.contains(address); }) && !aborted_;
    std::optional<Parcel> message;
    if (there) message = std::move(messages_.extract(address).mapped());
    lock.unlock();
    if (options.turn) options.turn->lock();
    if (!there) throw_if_aborted();
    return message;
  }

  void abort() {
    {
      const std::lock_guard lock(mutex_);
      aborted_ = true;
    }
    changed_.notify_all();
  }

  void throw_if_aborted() {
    const std::lock_guard lock(mutex_);
    if (aborted_) throw CommError(CommError::Kind::aborted, "the communicator was aborted");
  }

  const int size;
  const LocalOptions options;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Address, Parcel> messages_;
  bool aborted_ = false;
};

// An operation whose messages have been posted. `finish` takes the messages of the peers and writes the result.
class LocalWork final : public Work {
 public:
  LocalWork(const at::Device& device, std::function<void()> finish) : started_(device), finish_(std::move(finish)) {}
  void wait() override {
    if (!finish_) return;
    // The result is written after the copy of the sent data and after earlier uses of the receive tensor.
    started_.order_current_stream();
    std::exchange(finish_, nullptr)();
  }

 private:
  StreamMark started_;
  std::function<void()> finish_;
};

class LocalCommunicator final : public Communicator, public PeerWindows {
 public:
  LocalCommunicator(std::shared_ptr<Hub> hub, int world_rank, GroupTag group, const std::vector<int>& members)
      : hub_(std::move(hub)),
        world_rank_(world_rank),
        group_(std::move(group)),
        first_(members.front()),
        size_(static_cast<int>(members.size())),
        rank_(static_cast<int>(std::ranges::find(members, world_rank) - members.begin())) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string description() const override { return "threads of one process"; }
  void set_deadline(Clock::time_point deadline) override { deadline_ = deadline; }
  void abort() override { hub_->abort(); }
  void synchronize(std::string_view /*what*/) override {
    if (device().is_cuda()) current_stream(device()).synchronize();
  }

  WorkPtr exchange_many(std::span<const at::Tensor> sends, int to, std::span<const at::Tensor> receives, int from,
                        std::string_view what) override {
    const Step step = begin("exchange", what);
    post(step, to, sends);
    return finish_with(
        [this, step, from, targets = std::vector(receives.begin(), receives.end())] { receive(step, from, targets); });
  }

  PeerWindows* windows() override { return hub_->options.windows ? this : nullptr; }

  WorkPtr put_all(std::span<const at::Tensor> windows, std::span<const at::Tensor> sources, std::span<const Put> puts,
                  std::string_view what) override {
    const Step step = begin("put_all", what);
    check_puts(puts, sources, size_, text(step));
    for (int to = 0; to < size_; ++to) post_puts(step, to, puts_to(puts, to));
    return finish_with([this, step, targets = std::vector(windows.begin(), windows.end())] {
      for (int from = 0; from < size_; ++from) {
        const Parcel message = take(step, from);
        const std::string wrong = misfit(message.puts, targets);
        if (!wrong.empty()) fail(fmt::format("{}: rank {} puts {}", text(step), from, wrong));
        copy_blocks(blocks_of(message.puts, targets), device());
      }
    });
  }

  WorkPtr all_gather(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    const Step step = begin("all_gather", what);
    post_to_all(step, in);
    return finish_with([this, step, out] {
      for (int from = 0; from < size_; ++from) receive(step, from, std::vector{part(out, from)});
    });
  }

  WorkPtr reduce_scatter(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    const Step step = begin("reduce_scatter", what);
    for (int to = 0; to < size_; ++to) post(step, to, std::vector{part(in, to)});
    return finish_with([this, step, out] { reduce(step, ReduceOp::sum, out); });
  }

  WorkPtr all_reduce(at::Tensor& inout, ReduceOp op, std::string_view what) override {
    const Step step = begin("all_reduce", what);
    post_to_all(step, inout);
    return finish_with([this, step, inout, op] { reduce(step, op, inout); });
  }

  void checked_barrier(std::int64_t tag, std::chrono::milliseconds limit) override {
    const Step step{.operation = "checked_barrier",
                    .number = --barriers_,
                    .what = fmt::format("tag {}", tag),
                    .deadline = Clock::now() + limit};
    post_to_all(step, at::tensor({tag, operations_}));
    std::vector<at::Tensor> values;
    values.reserve(static_cast<std::size_t>(size_));
    for (int from = 0; from < size_; ++from) values.push_back(take(step, from).data.front());
    for (int from = 0; from < size_; ++from) {
      if (values[static_cast<std::size_t>(from)].equal(values[0])) continue;
      fail(fmt::format("{}: tag or operation count of rank {} differs from rank 0's", text(step), from));
    }
  }

 private:
  struct Step {
    std::string operation;
    std::int64_t number = 0;
    std::string what;
    Clock::time_point deadline;
  };

  CpGroups divide(const Division& division) override;

  [[noreturn]] static void fail(const std::string& what) { throw CommError(CommError::Kind::failed, what); }
  [[nodiscard]] const at::Device& device() const { return hub_->options.device; }

  Step begin(const char* operation, std::string_view what) {
    hub_->throw_if_aborted();
    return {.operation = operation, .number = operations_++, .what = std::string(what), .deadline = deadline_};
  }

  // Must be called after the posts, so that their copies come before the Work's mark.
  [[nodiscard]] WorkPtr finish_with(std::function<void()> finish) const {
    return std::make_unique<LocalWork>(device(), std::move(finish));
  }

  [[nodiscard]] std::string text(const Step& step) const {
    return fmt::format("rank {} of {}: {} ({})", rank_, size_, step.operation, step.what);
  }

  [[nodiscard]] at::Tensor part(const at::Tensor& tensor, int index) const {
    const std::int64_t count = tensor.numel() / size_;
    return tensor.view({-1}).narrow(0, index * count, count);
  }

  [[nodiscard]] Address address(const Step& step, int from, int to) const {
    return {.group = group_, .first = first_, .number = step.number, .from = from, .to = to};
  }

  void post(const Step& step, int to, std::span<const at::Tensor> tensors) {
    std::vector<at::Tensor> data;
    for (const at::Tensor& tensor : tensors) data.push_back(tensor.clone());
    hub_->post(address(step, rank_, to), {step.operation, std::move(data), {}, StreamMark(device())});
  }

  void post_to_all(const Step& step, const at::Tensor& tensor) {
    for (int to = 0; to < size_; ++to) post(step, to, {&tensor, 1});
  }

  // Copies the blocks one after the other into a tensor, from which the message's puts are then.
  void post_puts(const Step& step, int to, std::vector<Put> puts) {
    std::int64_t bytes = 0;
    for (const Put& put : puts) bytes += put.block.rows * put.block.width;
    at::Tensor packed = at::empty({bytes}, at::TensorOptions(at::kByte).device(device()));
    auto* next = static_cast<std::byte*>(packed.mutable_data_ptr());
    std::vector<BlockCopy> copies;
    for (Put& put : puts) {
      copies.push_back(put.block);
      copies.back().target = next;
      copies.back().target_stride = put.block.width;
      put.block.source = next;
      put.block.source_stride = put.block.width;
      next += put.block.rows * put.block.width;
    }
    std::erase_if(copies, is_empty);
    copy_blocks(copies, device());
    hub_->post(address(step, rank_, to), {step.operation, {std::move(packed)}, std::move(puts), StreamMark(device())});
  }

  // Returns a message whose data the current stream may read.
  [[nodiscard]] Parcel take(const Step& step, int from) const {
    auto message = hub_->take(address(step, from, rank_), step.deadline);
    if (!message) {
      throw CommError(CommError::Kind::timeout,
                      fmt::format("{}: timed out: no message from rank {}", text(step), from));
    }
    if (message->operation != step.operation) {
      fail(fmt::format("{}: rank {} is in {} instead", text(step), from, message->operation));
    }
    message->written.order_current_stream();
    // Keeps the allocator from giving the memory back to the sender's stream before this stream has read it.
    for (const at::Tensor& data : message->data) {
      if (data.is_cuda()) data.record_stream(current_stream(data.device()));
    }
    return std::move(*message);
  }

  void receive(const Step& step, int from, std::span<const at::Tensor> targets) const {
    const Parcel message = take(step, from);
    const auto fits = [](const at::Tensor& data, const at::Tensor& into) {
      return data.numel() == into.numel() && data.dtype() == into.dtype();
    };
    if (!std::ranges::equal(message.data, targets, fits)) {
      fail(fmt::format("{}: rank {} sent tensors of other sizes or dtypes than expected", text(step), from));
    }
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i].view({-1}).copy_(message.data[i].view({-1}));
  }

  // Reduces in rank order, so that every rank gets the same bits.
  void reduce(const Step& step, ReduceOp op, const at::Tensor& into) const {
    receive(step, 0, {&into, 1});
    for (int from = 1; from < size_; ++from) {
      const at::Tensor data = take(step, from).data.front().view_as(into);
      if (op == ReduceOp::sum) {
        into.add_(data);
      } else {
        into.copy_(into.maximum(data));
      }
    }
  }

  std::shared_ptr<Hub> hub_;
  int world_rank_;
  GroupTag group_;
  int first_;  // its first rank in the world
  int size_;
  int rank_;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::int64_t operations_ = 0;
  std::int64_t barriers_ = 0;
};

CpGroups groups_of_rank(const std::shared_ptr<Hub>& hub, int rank, const Division& division) {
  return make_groups(rank, hub->size, division, [&](CpGroup group, const std::vector<int>& members) {
    return std::make_shared<LocalCommunicator>(hub, rank, GroupTag{.division = division, .group = group}, members);
  });
}

CpGroups LocalCommunicator::divide(const Division& division) {
  hub_->throw_if_aborted();
  return group_.has_all_ranks() ? groups_of_rank(hub_, world_rank_, division) : CpGroups{};
}

}  // namespace

std::vector<CpGroups> make_local_groups(int size, const LocalOptions& options) {
  const auto hub = std::make_shared<Hub>(size, options);
  std::vector<CpGroups> groups;
  groups.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) groups.push_back(groups_of_rank(hub, rank, {}));
  return groups;
}

}  // namespace cp_pool
