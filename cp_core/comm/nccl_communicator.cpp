#include "cp_core/comm/nccl_communicator.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cp_core/comm/nccl_barrier.h"
#include "cp_core/comm/nccl_link.h"
#include "cp_core/comm/nccl_reduction.h"
#include "cp_core/comm/nccl_work.h"
#include "cp_core/comm/peer_exchange.h"
#include "cp_core/comm/puts.h"
#include "cp_core/cuda/delay.h"
#include "cp_core/thd/copy_blocks.h"

namespace cp_pool {
namespace {

using Clock = Communicator::Clock;
using Group = NcclLink::Group;

std::size_t bytes_of(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * tensor.element_size();
}

std::size_t count_of(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel());
}

std::byte* part(const at::Tensor& tensor, int index, std::size_t bytes) {
  return static_cast<std::byte*>(tensor.data_ptr()) + static_cast<std::size_t>(index) * bytes;
}

bool same_bytes(std::span<const at::Tensor> a, std::span<const at::Tensor> b) {
  return std::ranges::equal(a, b, {}, bytes_of, bytes_of);
}

void require(bool condition, const char* operation, std::string_view what, const char* expectation) {
  if (!condition) throw std::invalid_argument(fmt::format("{}, {}: {}", operation, what, expectation));
}

class NcclCommunicator final : public Communicator {
 public:
  // members: ranks of the link, by rank of this group.
  NcclCommunicator(const std::shared_ptr<NcclLink>& link, Group group, std::vector<int> members,
                   const c10::intrusive_ptr<c10d::Store>& store, const std::string& barrier_prefix)
      : link_(link),
        group_(group),
        members_(std::move(members)),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, link->device())),
        delays_(cuda::StreamDelays::from_environment(static_cast<std::uint64_t>(link->rank()))),
        barrier_(link, group, members_, stream_, store, barrier_prefix) {
    const auto self = std::ranges::find(members_, link->rank());
    rank_ = static_cast<int>(self - members_.begin());
    if (link->peers() != nullptr && size() > 1) peers_.emplace(link, group, members_, rank_, stream_);
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(members_.size()); }
  [[nodiscard]] std::string description() const override {
    if (link_->peers() != nullptr) return "NCCL and peer copies";
    return fmt::format("NCCL (no peer copies: {})", link_->why_no_peers());
  }
  void set_deadline(Clock::time_point deadline) override { link_->set_deadline(deadline); }
  void abort() override { link_->abort("abort was called"); }
  void synchronize(std::string_view what) override { link_->synchronize(describe("synchronize", what)); }

  WorkPtr exchange(const at::Tensor& send, int to, at::Tensor& recv, int from, std::string_view what) override {
    return exchange_many({&send, 1}, to, {&recv, 1}, from, what);
  }

  WorkPtr exchange_many(std::span<const at::Tensor> sends, int to, std::span<const at::Tensor> receives, int from,
                        std::string_view what) override {
    require((to == rank_) == (from == rank_), "exchange", what, "a rank that sends to itself receives from itself");
    require(to != rank_ || same_bytes(sends, receives), "exchange", what, "an exchange with itself keeps its size");
    const std::string step =
        fmt::format("{}: send to rank {}, receive from rank {}", describe("exchange", what), member(to), member(from));
    std::vector<at::Tensor> tensors(sends.begin(), sends.end());
    tensors.insert(tensors.end(), receives.begin(), receives.end());
    return start(step, tensors, [&] {
      if (to == rank_) {
        for (std::size_t i = 0; i < sends.size(); ++i) {
          copy(receives[i].data_ptr(), sends[i].const_data_ptr(), bytes_of(sends[i]));
        }
        return;
      }
      if (peers_) return peers_->exchange(place_of(what, step), sends, to, receives, from);
      send_and_receive(step, messages(sends, to), messages(receives, from));
    });
  }

  WorkPtr exchange_all(std::span<const Message> sends, std::span<const Message> receives,
                       std::string_view what) override {
    const std::string step = describe("exchange with all", what);
    std::vector<at::Tensor> tensors;
    for (const auto messages : {sends, receives}) {
      for (const Message& message : messages) {
        require(message.peer != rank_, "exchange_all", what, "messages are for other ranks");
        tensors.push_back(message.tensor);
      }
    }
    return start(step, tensors, [&] {
      if (!peers_) return send_and_receive(step, sends, receives);
      peers_->exchange_all(place_of(what, step), sends, receives);
    });
  }

  [[nodiscard]] bool has_windows() const override { return peers_.has_value(); }

  WorkPtr put_all(std::span<const at::Tensor> windows, std::span<const at::Tensor> sources, std::span<const Put> puts,
                  Meanwhile meanwhile, std::string_view what) override {
    require(has_windows(), "put_all", what, "ranks that can write into each other's memory");
    const std::string step = describe("put", what);
    check_puts(puts, sources, size(), step);
    const std::vector<Put> staying = puts_to(puts, rank_);
    const std::string wrong = misfit(staying, windows);
    require(wrong.empty(), "put_all", what, wrong.c_str());
    const std::vector<BlockCopy> own = blocks_of(staying, windows);
    std::vector<at::Tensor> tensors(windows.begin(), windows.end());
    tensors.insert(tensors.end(), sources.begin(), sources.end());
    WorkPtr work = start(step, tensors, [&] { peers_->put(place_of(what, step), windows, puts, meanwhile, own); });
    // What stays is copied beside attention, too, while the rest travels.
    if (meanwhile == Meanwhile::busy) copy_blocks(own, {at::kCUDA, link_->device()});
    return work;
  }

  WorkPtr all_gather(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    require(out.numel() == in.numel() * size(), "all_gather", what, "out holds size() times the elements of in");
    const std::string step = describe("all_gather", what);
    return start(step, {out, in}, [&] {
      if (in.numel() == 0) return;
      if (peers_) {
        copy(part(out, rank_, bytes_of(in)), in.const_data_ptr(), bytes_of(in));
        return exchange_parts(what, step, out, [&](int /*to*/) { return in.view(-1); });
      }
      enqueue(step, [&](ncclComm_t comm) {
        return ncclAllGather(in.const_data_ptr(), out.data_ptr(), bytes_of(in), ncclInt8, comm, stream_);
      });
    });
  }

  WorkPtr all_to_all(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    return swap_parts(out, in, what, /*own=*/true);
  }

  WorkPtr trade(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    return swap_parts(out, in, what, /*own=*/false);
  }

  WorkPtr reduce_scatter(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    require(in.numel() == out.numel() * size(), "reduce_scatter", what, "in holds size() times the elements of out");
    const std::string step = describe("reduce_scatter", what);
    return start(step, {out, in}, [&] {
      if (out.numel() == 0) return;
      const bool wide = widens(in, ReduceOp::sum);
      const at::Tensor all = wide ? in.to(at::kFloat) : in;
      const at::Tensor sum = wide ? at::empty(out.sizes(), out.options().dtype(at::kFloat)) : out;
      enqueue(step, [&](ncclComm_t comm) {
        return ncclReduceScatter(all.const_data_ptr(), sum.data_ptr(), count_of(sum), reduction_type(sum),
                                 reduction_of(sum, ReduceOp::sum), comm, stream_);
      });
      if (wide) out.copy_(sum);
    });
  }

  WorkPtr all_reduce(at::Tensor& inout, ReduceOp op, std::string_view what) override {
    const std::string step = describe("all_reduce", what);
    return start(step, {inout}, [&] {
      if (inout.numel() == 0) return;
      const bool wide = widens(inout, op);
      const at::Tensor sum = wide ? inout.to(at::kFloat) : inout;
      enqueue(step, [&](ncclComm_t comm) {
        return ncclAllReduce(sum.const_data_ptr(), sum.data_ptr(), count_of(sum), reduction_type(sum),
                             reduction_of(sum, op), comm, stream_);
      });
      if (wide) inout.copy_(sum);
    });
  }

  void checked_barrier(std::int64_t tag, std::chrono::milliseconds limit) override {
    barrier_.pass(tag, operations_, limit);
  }

 private:
  [[nodiscard]] int member(int rank) const { return members_.at(static_cast<std::size_t>(rank)); }

  [[nodiscard]] std::string describe(const char* operation, std::string_view what) const {
    return fmt::format("rank {}: {}, {}", link_->rank(), operation, what);
  }

  static std::vector<Message> messages(std::span<const at::Tensor> tensors, int peer) {
    std::vector<Message> result;
    result.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) result.push_back({.tensor = tensor, .peer = peer});
    return result;
  }

  // Starts with the next rank, so that not all write to the same one first.
  template <typename Body>
  void for_each_peer(Body&& body) const {
    for (int distance = 1; distance < size(); ++distance) {
      body((rank_ + distance) % size(), (rank_ + size() - distance) % size());
    }
  }

  [[nodiscard]] PeerExchange::Place place_of(std::string_view what, std::string_view step) const {
    return {.number = operations_, .name = what, .step = step};
  }

  [[nodiscard]] at::Tensor flat_part(const at::Tensor& tensor, int index) const {
    const std::int64_t count = tensor.numel() / size();
    return tensor.view(-1).narrow(0, index * count, count);
  }

  // sent(to): what goes to a rank. Part r of out comes from rank r.
  template <typename Sent>
  void exchange_parts(std::string_view what, std::string_view step, const at::Tensor& out, const Sent& sent) {
    std::vector<Message> sends;
    std::vector<Message> receives;
    for_each_peer([&](int to, int from) {
      sends.push_back({.tensor = sent(to), .peer = to});
      receives.push_back({.tensor = flat_part(out, from), .peer = from});
    });
    peers_->exchange_all(place_of(what, step), sends, receives);
  }

  void send_and_receive(const std::string& step, std::span<const Message> sends, std::span<const Message> receives) {
    const auto empty = [](const Message& message) { return message.tensor.numel() == 0; };
    if (std::ranges::all_of(sends, empty) && std::ranges::all_of(receives, empty)) return;
    enqueue(step, [&](ncclComm_t comm) {
      NcclResults results;
      results << ncclGroupStart();
      for (const auto& [tensor, from] : receives) {
        if (tensor.numel() == 0) continue;
        results << ncclRecv(tensor.data_ptr(), bytes_of(tensor), ncclInt8, from, comm, stream_);
      }
      for (const auto& [tensor, to] : sends) {
        if (tensor.numel() == 0) continue;
        results << ncclSend(tensor.const_data_ptr(), bytes_of(tensor), ncclInt8, to, comm, stream_);
      }
      results << ncclGroupEnd();
      return results.value();
    });
  }

  WorkPtr swap_parts(at::Tensor& out, const at::Tensor& in, std::string_view what, bool own) {
    require(out.numel() == in.numel() && in.numel() % size() == 0, "all_to_all", what,
            "in and out have size() equal parts");
    const std::string step = describe("all_to_all", what);
    return start(step, {out, in}, [&] {
      const std::size_t bytes = bytes_of(in) / static_cast<std::size_t>(size());
      if (bytes == 0) return;
      if (own) copy(part(out, rank_, bytes), part(in, rank_, bytes), bytes);
      if (size() == 1) return;
      if (peers_) return exchange_parts(what, step, out, [&](int to) { return flat_part(in, to); });
      enqueue(step, [&](ncclComm_t comm) {
        NcclResults results;
        results << ncclGroupStart();
        for_each_peer([&](int to, int from) {
          results << ncclSend(part(in, to, bytes), bytes, ncclInt8, to, comm, stream_);
          results << ncclRecv(part(out, from, bytes), bytes, ncclInt8, from, comm, stream_);
        });
        results << ncclGroupEnd();
        return results.value();
      });
    });
  }

  // Runs `body` with the communicator's stream as the current one, after what the caller's has so far.
  template <typename Body>
  WorkPtr start(const std::string& step, std::vector<at::Tensor> tensors, Body&& body) {
    ++operations_;
    link_->throw_if_failed(step);
    auto work = std::make_unique<NcclWork>(link_, step, stream_, std::move(tensors));
    c10::cuda::CUDAEvent ready;
    ready.record(c10::cuda::getCurrentCUDAStream(link_->device()));
    const c10::cuda::CUDAStreamGuard guard(stream_);
    ready.block(stream_);
    delays_.next();
    std::forward<Body>(body)();
    delays_.next();
    work->enqueued();
    return work;
  }

  void enqueue(const std::string& step, const std::function<ncclResult_t(ncclComm_t)>& call) {
    link_->enqueue(group_, step, call);
  }

  void copy(void* target, const void* source, std::size_t bytes) {
    if (bytes > 0) C10_CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, stream_));
  }

  std::shared_ptr<NcclLink> link_;
  Group group_;
  std::vector<int> members_;
  c10::cuda::CUDAStream stream_;
  cuda::StreamDelays delays_;
  NcclBarrier barrier_;
  std::optional<PeerExchange> peers_;
  int rank_ = 0;
  std::int64_t operations_ = 0;
};

}  // namespace

CpGroups make_nccl_groups(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix, int rank, int size,
                          std::chrono::milliseconds connect_timeout, void* started) {
  const auto link = NcclLink::connect(store, prefix, rank, size, connect_timeout, static_cast<ncclComm_t>(started));
  const auto make = [&](Group group, const char* name, std::vector<int> members) -> std::shared_ptr<Communicator> {
    if (members.empty()) return nullptr;
    return std::make_shared<NcclCommunicator>(link, group, std::move(members), store,
                                              fmt::format("{}nccl_place/{}/", prefix, name));
  };
  const GroupRanks ranks = group_ranks(rank, size);
  CpGroups groups;
  groups.cp = make(Group::cp, "cp", ranks.cp);
  groups.inner = make(Group::inner, "inner", ranks.inner);
  groups.outer = make(Group::outer, "outer", ranks.outer);
  return groups;
}

}  // namespace cp_pool
