#include "cp_core/comm/peer/peer_communicator.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <ATen/ops/amax.h>
#include <ATen/ops/any.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cp_core/comm/peer/puts.h"
#include "cp_core/thd/copy_rows.h"

namespace cp_pool {
namespace {

bool same_bytes(std::span<const at::Tensor> a, std::span<const at::Tensor> b) {
  const auto bytes = [](const at::Tensor& tensor) { return tensor.nbytes(); };
  return std::ranges::equal(a, b, {}, bytes, bytes);
}

void require(bool condition, const char* operation, std::string_view what, const char* expectation) {
  if (!condition) throw std::invalid_argument(fmt::format("{}, {}: {}", operation, what, expectation));
}

std::vector<Communicator::Message> messages_of(std::span<const at::Tensor> tensors, int peer) {
  std::vector<Communicator::Message> messages;
  messages.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) messages.push_back({.tensor = tensor, .peer = peer});
  return messages;
}

// Reduces over the ranks, which are dimension 0 of `all`, in rank order. 16-bit floats are summed in fp32, which the
// caller rounds once; the sum of booleans is their logical "or".
at::Tensor reduced(const at::Tensor& all, ReduceOp op) {
  if (all.scalar_type() == at::kBool) return all.any(0);
  if (op == ReduceOp::max) return all.amax(0);
  const bool wide = at::isReducedFloatingType(all.scalar_type());
  return all.sum({0}, /*keepdim=*/false, wide ? at::kFloat : all.scalar_type());
}

PeerLink::Window window_of(const at::Tensor& tensor) {
  return {.first = static_cast<std::byte*>(tensor.data_ptr()), .bytes = tensor.nbytes()};
}

// Places the whole tensor into the whole window.
PeerWindows::Put all_of(const at::Tensor& tensor, std::size_t window) {
  return {.window = window,
          .first = 0,
          .block = {.source = tensor.const_data_ptr(), .rows = 1, .width = static_cast<std::int64_t>(tensor.nbytes())}};
}

// An operation that has been enqueued, with its tensors. wait() orders the caller's stream after the operation, so
// their memory may then be reused there. A Work that was never waited for tells the allocator to keep the memory until
// `stream` has finished with it; doing so for every operation would cost an event per tensor.
class GpuWork final : public Work {
 public:
  GpuWork(std::shared_ptr<GpuLink> link, std::string step, c10::cuda::CUDAStream stream,
          std::vector<at::Tensor> tensors)
      : link_(std::move(link)), step_(std::move(step)), stream_(stream), tensors_(std::move(tensors)) {}
  GpuWork(const GpuWork&) = delete;
  GpuWork& operator=(const GpuWork&) = delete;
  ~GpuWork() override {
    for (const at::Tensor& tensor : tensors_) tensor.record_stream(stream_);
  }

  // Called when the whole operation has been enqueued.
  void enqueued() {
    done_ = std::make_shared<c10::cuda::CUDAEvent>();
    done_->record(stream_);
    link_->add_pending(step_, done_);
  }

  void wait() override {
    link_->throw_if_failed(step_);
    done_->block(c10::cuda::getCurrentCUDAStream(link_->device()));
    tensors_.clear();
  }

 private:
  std::shared_ptr<GpuLink> link_;
  std::string step_;
  c10::cuda::CUDAStream stream_;
  std::shared_ptr<c10::cuda::CUDAEvent> done_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace

template <typename Body>
Communicator::WorkPtr PeerCommunicator::start(const std::string& step, std::vector<at::Tensor> tensors, Body&& body) {
  ++operations_;
  link_->throw_if_failed(step);
  auto work = std::make_unique<GpuWork>(link_, step, stream_, std::move(tensors));
  c10::cuda::CUDAEvent ready;
  ready.record(c10::cuda::getCurrentCUDAStream(link_->device()));
  link_->hold_memory();
  const c10::cuda::CUDAStreamGuard guard(stream_);
  ready.block(stream_);
  delays_.next();
  std::forward<Body>(body)();
  delays_.next();
  work->enqueued();
  return work;
}

PeerCommunicator::PeerCommunicator(std::shared_ptr<GpuLink> link, GroupTag group, std::vector<int> members,
                                   const c10::intrusive_ptr<c10d::Store>& store, const std::string& barrier_prefix)
    : link_(std::move(link)),
      group_(std::move(group)),
      members_(std::move(members)),
      stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, link_->device())),
      delays_(cuda::StreamDelays::from_environment(static_cast<std::uint64_t>(link_->rank()))),
      barrier_(link_, group_, members_, stream_, store, barrier_prefix) {
  rank_ = static_cast<int>(std::ranges::find(members_, link_->rank()) - members_.begin());
}

std::string PeerCommunicator::description() const {
  return "peer copies (ranks share a GPU)";
}

std::string PeerCommunicator::describe(const char* operation, std::string_view what) const {
  return fmt::format("rank {}: {}, {}", link_->rank(), operation, what);
}

Communicator::WorkPtr PeerCommunicator::exchange_many(std::span<const at::Tensor> sends, int to,
                                                      std::span<const at::Tensor> receives, int from,
                                                      std::string_view what) {
  require((to == rank_) == (from == rank_), "exchange", what, "a rank that sends to itself receives from itself");
  require(to != rank_ || same_bytes(sends, receives), "exchange", what, "an exchange with itself keeps its size");
  const std::string step =
      fmt::format("{}: send to rank {}, receive from rank {}", describe("exchange", what), member(to), member(from));
  std::vector<at::Tensor> tensors(sends.begin(), sends.end());
  tensors.insert(tensors.end(), receives.begin(), receives.end());
  return start(step, tensors, [&] {
    if (to == rank_) {
      for (std::size_t i = 0; i < sends.size(); ++i) copy(receives[i], sends[i]);
      return;
    }
    if (has_peers()) {
      PeerLink::Operation operation;
      operation.incoming = {from_peer(from, receives)};
      operation.outgoing = {to_peer(to, sends)};
      return enqueue_with_peers(place_of(what, step), operation);
    }
    send_and_receive(place_of(what, step), messages_of(sends, to), messages_of(receives, from));
  });
}

Communicator::WorkPtr PeerCommunicator::exchange_all(std::span<const Message> sends, std::span<const Message> receives,
                                                     std::string_view what) {
  const std::string step = describe("all_to_all", what);
  std::vector<at::Tensor> tensors;
  for (const auto messages : {sends, receives}) {
    for (const Message& message : messages) {
      require(message.peer != rank_, "exchange_all", what, "messages are for other ranks");
      tensors.push_back(message.tensor);
    }
  }
  return start(step, tensors, [&] {
    if (size() > 1) send_and_receive(place_of(what, step), sends, receives);
  });
}

Communicator::WorkPtr PeerCommunicator::put_all(std::span<const at::Tensor> windows,
                                                std::span<const at::Tensor> sources, std::span<const Put> puts,
                                                std::string_view what) {
  const std::string step = describe("put", what);
  check_puts(puts, sources, size(), step);
  const std::vector<Put> staying = puts_to(puts, rank_);
  const std::string wrong = misfit(staying, windows);
  require(wrong.empty(), "put_all", what, wrong.c_str());
  const std::vector<BlockCopy> own = blocks_of(staying, windows);
  std::vector<at::Tensor> tensors(windows.begin(), windows.end());
  tensors.insert(tensors.end(), sources.begin(), sources.end());
  WorkPtr work = start(step, tensors, [&] {
    PeerLink::Operation operation;
    for_each_peer([&](int peer, int /*from*/) {
      operation.incoming.push_back(from_peer(peer, windows));
      operation.outgoing.push_back({.rank = member(peer), .blocks = puts_to(puts, peer)});
    });
    enqueue_with_peers(place_of(what, step), operation);
  });
  // Blocks that stay on this device are copied on the caller's stream, while the others are transferred.
  cp_pool::copy_blocks(own, {at::kCUDA, link_->device()});
  return work;
}

Communicator::WorkPtr PeerCommunicator::all_gather(at::Tensor& out, const at::Tensor& in, std::string_view what) {
  require(out.numel() == in.numel() * size(), "all_gather", what, "out holds size() times the elements of in");
  const std::string step = describe("all_gather", what);
  return start(step, {out, in}, [&] {
    if (in.numel() == 0) return;
    copy(flat_part(out, rank_), in.view(-1));
    if (size() > 1) gather_parts(place_of(what, step), out, in);
  });
}

Communicator::WorkPtr PeerCommunicator::reduce_scatter(at::Tensor& out, const at::Tensor& in, std::string_view what) {
  require(in.numel() == out.numel() * size(), "reduce_scatter", what, "in holds size() times the elements of out");
  const std::string step = describe("reduce_scatter", what);
  return start(step, {out, in}, [&] {
    if (out.numel() == 0) return;
    if (size() == 1) return copy(out, in);
    sum_parts(place_of(what, step), out, in);
  });
}

Communicator::WorkPtr PeerCommunicator::all_reduce(at::Tensor& inout, ReduceOp op, std::string_view what) {
  const std::string step = describe("all_reduce", what);
  return start(step, {inout}, [&] {
    if (inout.numel() > 0 && size() > 1) reduce(place_of(what, step), inout, op);
  });
}

void PeerCommunicator::checked_barrier(std::int64_t tag, std::chrono::milliseconds limit) {
  barrier_.pass(tag, operations_, limit,
                [this](at::Tensor& all, const at::Tensor& mine, std::int64_t number, const GpuLink::Wait& wait) {
                  gather_places(all, mine, number, wait);
                });
}

// --- operations on the communicator's stream ---

void PeerCommunicator::send_and_receive(const Place& place, std::span<const Message> sends,
                                        std::span<const Message> receives) {
  PeerLink::Operation operation;
  for_each_peer([&](int peer, int /*from*/) {
    operation.incoming.push_back(from_peer(peer, of_peer(receives, peer)));
    operation.outgoing.push_back(to_peer(peer, of_peer(sends, peer)));
  });
  enqueue_with_peers(place, operation);
}

template <typename PartFor>
void PeerCommunicator::swap_parts(const Place& place, const at::Tensor& out, const PartFor& part_for) {
  std::vector<Message> sends;
  std::vector<Message> receives;
  for_each_peer([&](int to, int from) {
    sends.push_back({.tensor = part_for(to), .peer = to});
    receives.push_back({.tensor = flat_part(out, from), .peer = from});
  });
  PeerCommunicator::send_and_receive(place, sends, receives);
}

void PeerCommunicator::gather_parts(const Place& place, const at::Tensor& out, const at::Tensor& in) {
  swap_parts(place, out, [&in](int /*to*/) { return in.view(-1); });
}

void PeerCommunicator::sum_parts(const Place& place, at::Tensor& out, const at::Tensor& in) {
  const at::Tensor all = at::empty_like(in).view({size(), out.numel()});
  copy(all.select(0, rank_), flat_part(in, rank_));
  swap_parts(place, all, [&](int to) { return flat_part(in, to); });
  out.view(-1).copy_(reduced(all, ReduceOp::sum));
}

void PeerCommunicator::reduce(const Place& place, at::Tensor& inout, ReduceOp op) {
  inout.view(-1).copy_(reduced(gathered(place, inout), op));
}

at::Tensor PeerCommunicator::gathered(const Place& place, const at::Tensor& mine) {
  const at::Tensor all = at::empty({size(), mine.numel()}, mine.options());
  copy(all.select(0, rank_), mine.view(-1));
  PeerCommunicator::gather_parts(place, all, mine);
  return all;
}

// Barriers have numbers below zero, so that a barrier is never matched with another operation.
void PeerCommunicator::gather_places(at::Tensor& all, const at::Tensor& mine, std::int64_t barrier,
                                     const GpuLink::Wait& wait) {
  copy(all.select(0, rank_), mine);
  if (size() == 1) return;
  PeerCommunicator::gather_parts({.number = -1 - barrier, .name = "barrier", .step = wait.step, .wait = &wait}, all,
                                 mine);
}

at::Tensor PeerCommunicator::flat_part(const at::Tensor& tensor, int index) const {
  const std::int64_t count = tensor.numel() / size();
  return tensor.view(-1).narrow(0, index * count, count);
}

void PeerCommunicator::copy(const at::Tensor& target, const at::Tensor& source) const {
  if (source.nbytes() == 0) return;
  C10_CUDA_CHECK(cudaMemcpyAsync(target.mutable_data_ptr(), source.const_data_ptr(), source.nbytes(),
                                 cudaMemcpyDeviceToDevice, stream_));
}

PeerLink::Incoming PeerCommunicator::from_peer(int peer, std::span<const at::Tensor> windows) const {
  PeerLink::Incoming incoming{.rank = member(peer), .windows = {}};
  for (const at::Tensor& window : windows) incoming.windows.push_back(window_of(window));
  return incoming;
}

PeerLink::Outgoing PeerCommunicator::to_peer(int peer, std::span<const at::Tensor> tensors) const {
  PeerLink::Outgoing outgoing{.rank = member(peer), .blocks = {}, .fills = true};
  for (const at::Tensor& tensor : tensors) outgoing.blocks.push_back(all_of(tensor, outgoing.blocks.size()));
  return outgoing;
}

void PeerCommunicator::enqueue_with_peers(const Place& place, PeerLink::Operation& operation) {
  const std::string step(place.step);
  operation.group = PeerBoard::group_number(group_);
  operation.number = place.number;
  operation.name = place.name;
  operation.step = place.step;
  const auto deadline = place.wait == nullptr ? link_->deadline() : place.wait->deadline;
  auto next_look = GpuLink::Clock::now() + GpuLink::kBetweenLooks;
  const auto check = [&] {
    link_->throw_if_failed(step);
    if (place.wait == nullptr || !place.wait->look || GpuLink::Clock::now() < next_look) return;
    place.wait->look();
    next_look = GpuLink::Clock::now() + GpuLink::kBetweenLooks;
  };
  try {
    link_->peers()->enqueue(operation, stream_, deadline, check);
  } catch (const CommError& error) {
    const bool explains = place.wait != nullptr && error.kind() == CommError::Kind::timeout;
    link_->fail(error.kind(), step, explains ? place.wait->explain() : error.what());
  }
}

}  // namespace cp_pool
