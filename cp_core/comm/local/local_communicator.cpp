#include "cp_core/comm/local/local_communicator.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "cp_core/comm/local/local_hub.h"
#include "cp_core/comm/peer/puts.h"

namespace cp_pool {
namespace {

// The groups that all ranks are divided into. The rank that asks first makes the communicators of every rank.
class LocalDivided {
 public:
  LocalDivided(int size, const LocalOptions& options) : size_(size), options_(options) {}

  // Throws CommError after abort().
  CpGroups of_rank(int rank, const Division& division);
  void abort();

 private:
  int size_;
  LocalOptions options_;
  std::mutex mutex_;
  std::map<Division, std::vector<CpGroups>> made_;
  bool aborted_ = false;
};

// Returns one communicator for each of `size` ranks. divided: null unless these are all ranks.
std::vector<std::shared_ptr<Communicator>> connect_local(int size, const std::shared_ptr<LocalDivided>& divided,
                                                         const LocalOptions& options);

// The groups of each of `size` ranks that are so divided.
std::vector<CpGroups> groups_of_ranks(int size, const Division& division, const LocalOptions& options) {
  std::vector<CpGroups> out(static_cast<std::size_t>(size));
  const auto divided = division.empty() ? std::make_shared<LocalDivided>(size, options) : nullptr;
  // Makes a group for all its members, when `rank` is its first member.
  const auto make_group = [&](int rank, const std::vector<int>& ranks,
                              std::shared_ptr<Communicator> CpGroups::* group) {
    if (ranks.empty() || ranks.front() != rank) return;
    const auto members =
        connect_local(static_cast<int>(ranks.size()), group == &CpGroups::cp ? divided : nullptr, options);
    for (std::size_t i = 0; i < ranks.size(); ++i) out[static_cast<std::size_t>(ranks[i])].*group = members[i];
  };
  for (int rank = 0; rank < size; ++rank) {
    const GroupRanks ranks = group_ranks(rank, size, division);
    make_group(rank, ranks.cp, &CpGroups::cp);
    make_group(rank, ranks.inner, &CpGroups::inner);
    make_group(rank, ranks.outer, &CpGroups::outer);
  }
  return out;
}

CpGroups LocalDivided::of_rank(int rank, const Division& division) {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw CommError(CommError::Kind::aborted, "the communicator was aborted");
  auto found = made_.find(division);
  if (found == made_.end()) found = made_.emplace(division, groups_of_ranks(size_, division, options_)).first;
  return found->second[static_cast<std::size_t>(rank)];
}

void LocalDivided::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  for (const auto& [division, of_ranks] : made_) {
    for (const CpGroups& of_rank : of_ranks) {
      for (const auto& group : {of_rank.cp, of_rank.inner, of_rank.outer}) {
        if (group) group->abort();
      }
    }
  }
}

using Operation = LocalHub::Operation;

at::Tensor bytes_of(const at::Tensor& tensor) {
  return tensor.view({-1}).view(at::kByte);
}

std::int64_t bytes_of_all(std::span<const at::Tensor> tensors) {
  std::int64_t total = 0;
  for (const at::Tensor& tensor : tensors) total += static_cast<std::int64_t>(tensor.nbytes());
  return total;
}

at::Tensor packed_message(std::span<const at::Tensor> tensors, const at::Device& device) {
  at::Tensor message = at::empty({bytes_of_all(tensors)}, at::TensorOptions(at::kByte).device(device));
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    const auto count = static_cast<std::int64_t>(tensor.nbytes());
    message.narrow(0, begin, count).copy_(bytes_of(tensor));
    begin += count;
  }
  return message;
}

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
  // divided: null unless this is a communicator of all ranks.
  LocalCommunicator(std::shared_ptr<LocalHub> hub, std::shared_ptr<LocalDivided> divided, const LocalOptions& options,
                    int size, int rank)
      : hub_(std::move(hub)),
        divided_(std::move(divided)),
        device_(options.device),
        windows_(options.windows),
        size_(size),
        rank_(rank) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string description() const override { return "threads of one process"; }
  void set_deadline(Clock::time_point deadline) override { deadline_ = deadline; }

  WorkPtr exchange(const at::Tensor& send, int to, at::Tensor& recv, int from, std::string_view what) override {
    const Step step = begin(Operation::exchange, what);
    post(step, to, send.clone());
    return finish_with(recv.device(), [this, step, recv, from] { receive(step, from, recv); });
  }

  WorkPtr exchange_many(std::span<const at::Tensor> sends, int to, std::span<const at::Tensor> receives, int from,
                        std::string_view what) override {
    const Step step = begin(Operation::exchange, what);
    const at::Device device = device_of(sends, receives);
    post(step, to, packed_message(sends, device));
    std::vector<at::Tensor> targets(receives.begin(), receives.end());
    return finish_with(device, [this, step, targets = std::move(targets), from] { receive_many(step, from, targets); });
  }

  PeerWindows* windows() override { return windows_ ? this : nullptr; }

  WorkPtr put_all(std::span<const at::Tensor> windows, std::span<const at::Tensor> sources, std::span<const Put> puts,
                  std::string_view what) override {
    const Step step = begin(Operation::put_all, what);
    check_puts(puts, sources, size_, text(step));
    const at::Device device = device_of(sources, windows);
    for (int to = 0; to < size_; ++to) {
      std::vector<Put> of_rank = puts_to(puts, to);
      at::Tensor packed = pack_puts(of_rank, device);
      post(step, to, std::move(packed), std::move(of_rank));
    }
    std::vector<at::Tensor> targets(windows.begin(), windows.end());
    return finish_with(device, [this, step, targets = std::move(targets)] {
      for (int from = 0; from < size_; ++from) receive_puts(step, from, targets);
    });
  }

  WorkPtr all_gather(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    const Step step = begin(Operation::all_gather, what);
    post_to_all(step, in);
    return finish_with(out.device(), [this, step, out] {
      for (int from = 0; from < size_; ++from) receive(step, from, part(out, from));
    });
  }

  WorkPtr reduce_scatter(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    const Step step = begin(Operation::reduce_scatter, what);
    for (int to = 0; to < size_; ++to) post(step, to, part(in, to).clone());
    return finish_with(out.device(), [this, step, out] { reduce(step, ReduceOp::sum, out); });
  }

  WorkPtr all_reduce(at::Tensor& inout, ReduceOp op, std::string_view what) override {
    const Step step = begin(Operation::all_reduce, what);
    post_to_all(step, inout);
    return finish_with(inout.device(), [this, step, inout, op] { reduce(step, op, inout); });
  }

  void checked_barrier(std::int64_t tag, std::chrono::milliseconds limit) override {
    const std::int64_t count = operations_;
    const Step step{.operation = Operation::barrier,
                    .number = barriers_++,
                    .what = fmt::format("tag {}", tag),
                    .deadline = Clock::now() + limit};
    post_to_all(step, at::tensor({tag, count}));
    std::vector<at::Tensor> values;
    values.reserve(static_cast<std::size_t>(size_));
    for (int from = 0; from < size_; ++from) values.push_back(take(step, from));
    for (int from = 0; from < size_; ++from) {
      if (values[static_cast<std::size_t>(from)].equal(values[0])) continue;
      throw CommError(CommError::Kind::failed,
                      fmt::format("{}: tag or operation count of rank {} differs from rank 0's", text(step), from));
    }
  }

  // Polls, since CUDA cannot wait for an event with a deadline.
  void synchronize(std::string_view what) override {
    const StreamMark end(device_);
    while (!end.reached()) {
      hub_->check_not_aborted();
      if (Clock::now() >= deadline_) {
        throw CommError(
            CommError::Kind::timeout,
            fmt::format("rank {} of {}: synchronize ({}): timed out: the device has not finished", rank_, size_, what));
      }
      std::this_thread::sleep_for(kBetweenQueries);
    }
  }

  void abort() override {
    hub_->abort();
    if (divided_) divided_->abort();
  }
  CpGroups divided(const Division& division) override {
    return divided_ ? divided_->of_rank(rank_, division) : CpGroups{};
  }

 private:
  static constexpr std::chrono::microseconds kBetweenQueries{20};

  struct Step {
    Operation operation = Operation::exchange;
    std::int64_t number = 0;
    std::string what;
    Clock::time_point deadline;
  };

  Step begin(Operation operation, std::string_view what) {
    hub_->check_not_aborted();
    return {.operation = operation, .number = operations_++, .what = std::string(what), .deadline = deadline_};
  }

  // Must be called after the posts, so that their copies come before the Work's mark.
  static WorkPtr finish_with(const at::Device& device, std::function<void()> finish) {
    return std::make_unique<LocalWork>(device, std::move(finish));
  }

  // The device of the tensors; the communicator's own if there are none.
  [[nodiscard]] at::Device device_of(std::span<const at::Tensor> sends, std::span<const at::Tensor> receives) const {
    if (!sends.empty()) return sends.front().device();
    return receives.empty() ? device_ : receives.front().device();
  }

  [[nodiscard]] std::string text(const Step& step) const {
    return fmt::format("rank {} of {}: {} ({})", rank_, size_, LocalHub::name_of(step.operation), step.what);
  }

  [[nodiscard]] at::Tensor part(const at::Tensor& tensor, int index) const {
    const std::int64_t count = tensor.numel() / size_;
    return tensor.view({-1}).narrow(0, index * count, count);
  }

  // data: written on the current stream, and not shared with the caller.
  void post(const Step& step, int to, at::Tensor data, std::vector<Put> puts = {}) {
    StreamMark written(data.device());
    hub_->post(
        {.barrier = step.operation == Operation::barrier, .number = step.number, .from = rank_, .to = to},
        {.operation = step.operation, .data = std::move(data), .written = std::move(written), .puts = std::move(puts)});
  }

  void post_to_all(const Step& step, const at::Tensor& data) {
    for (int to = 0; to < size_; ++to) post(step, to, data.clone());
  }

  // Returns a message whose data the current stream may read.
  [[nodiscard]] LocalHub::Message take_message(const Step& step, int from) const {
    auto message =
        hub_->take({.barrier = step.operation == Operation::barrier, .number = step.number, .from = from, .to = rank_},
                   step.deadline);
    if (!message) {
      throw CommError(CommError::Kind::timeout,
                      fmt::format("{}: timed out: no message from rank {}", text(step), from));
    }
    if (message->operation != step.operation) {
      throw CommError(CommError::Kind::failed, fmt::format("{}: rank {} is in {} instead", text(step), from,
                                                           LocalHub::name_of(message->operation)));
    }
    message->written.order_current_stream();
    // Keeps the allocator from giving the memory back to the sender's stream before this stream has read it.
    if (message->data.is_cuda()) message->data.record_stream(current_stream(message->data.device()));
    return std::move(*message);
  }

  [[nodiscard]] at::Tensor take(const Step& step, int from) const { return take_message(step, from).data; }

  void receive(const Step& step, int from, const at::Tensor& into) const {
    const at::Tensor data = take(step, from);
    if (data.numel() != into.numel() || data.dtype() != into.dtype()) {
      throw CommError(CommError::Kind::failed,
                      fmt::format("{}: rank {} sent {} elements of {}, expected {} of {}", text(step), from,
                                  data.numel(), data.dtype().name(), into.numel(), into.dtype().name()));
    }
    into.view({-1}).copy_(data.view({-1}));
  }

  void receive_many(const Step& step, int from, std::span<const at::Tensor> targets) const {
    const at::Tensor data = take(step, from);
    const std::int64_t expected = bytes_of_all(targets);
    if (data.dtype() != at::kByte || data.numel() != expected) {
      throw CommError(CommError::Kind::failed,
                      fmt::format("{}: rank {} sent {} elements of {}, expected {} bytes", text(step), from,
                                  data.numel(), data.dtype().name(), expected));
    }
    std::int64_t begin = 0;
    for (const at::Tensor& target : targets) {
      const auto count = static_cast<std::int64_t>(target.nbytes());
      bytes_of(target).copy_(data.narrow(0, begin, count));
      begin += count;
    }
  }

  void receive_puts(const Step& step, int from, std::span<const at::Tensor> windows) const {
    const LocalHub::Message message = take_message(step, from);
    const std::string wrong = misfit(message.puts, windows);
    if (!wrong.empty()) {
      throw CommError(CommError::Kind::failed, fmt::format("{}: rank {} puts {}", text(step), from, wrong));
    }
    write_puts(message.puts, message.data, windows);
  }

  // Reduces in rank order, so that every rank gets the same bits.
  void reduce(const Step& step, ReduceOp op, const at::Tensor& into) const {
    receive(step, 0, into);
    for (int from = 1; from < size_; ++from) {
      const at::Tensor data = take(step, from).view_as(into);
      if (op == ReduceOp::sum) {
        into.add_(data);
      } else {
        into.copy_(into.maximum(data));
      }
    }
  }

  std::shared_ptr<LocalHub> hub_;
  std::shared_ptr<LocalDivided> divided_;
  at::Device device_;
  bool windows_;
  int size_;
  int rank_;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::int64_t operations_ = 0;
  std::int64_t barriers_ = 0;
};

std::vector<std::shared_ptr<Communicator>> connect_local(int size, const std::shared_ptr<LocalDivided>& divided,
                                                         const LocalOptions& options) {
  const auto hub = std::make_shared<LocalHub>();
  std::vector<std::shared_ptr<Communicator>> communicators;
  communicators.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    communicators.push_back(std::make_shared<LocalCommunicator>(hub, divided, options, size, rank));
  }
  return communicators;
}

}  // namespace

std::vector<CpGroups> make_local_groups(int size, const LocalOptions& options) {
  return groups_of_ranks(size, {}, options);
}

}  // namespace cp_pool
