#include "cp_core/comm/gloo/gloo_communicator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "cp_core/comm/gloo/gloo_mesh.h"

namespace cp_pool {
namespace {

using Clock = Communicator::Clock;
using std::chrono::milliseconds;

// Messages of different groups, and of barriers, have different tags so that they never meet. A tag has 31 bits: 6 for
// GroupTag::parts (up to 64), 2 for the kind of group, 1 for barriers and 22 for a counter. Ranks are divided in one
// way at a time, so divisions may share tags.
constexpr std::size_t kGroups = 3;
constexpr std::array<const char*, kGroups> kGroupWords{"", " of its inner group", " of its outer group"};
constexpr std::size_t index_of(CpGroup group) {
  return static_cast<std::size_t>(group);
}

// The state that all groups of one rank share.
struct Link {
  std::shared_ptr<GlooMesh> mesh;
  std::atomic<Clock::time_point> deadline{Clock::time_point::max()};
  // For the groups of ranks that are not divided: how many operations have begun, and the tag of the last barrier of
  // all ranks if no operation has begun since.
  std::array<std::uint64_t, kGroups> operations{};
  std::optional<std::int64_t> proved_tag;
};

// Lengths of a barrier's messages, in 64-bit numbers.
constexpr std::size_t kPlaceSize = 1 + kGroups;
constexpr std::size_t kAnswerSize = 8;
constexpr milliseconds kLeastPatience{20};
constexpr milliseconds kMostPatience{250};

constexpr int kCounterBits = 22;

int make_tag(const GroupTag& tag, bool barrier, std::uint64_t count) {
  const auto counter = static_cast<int>(count & ((std::uint64_t{1} << kCounterBits) - 1));
  const int group = ((tag.parts() - 1) << 2) | static_cast<int>(tag.group);
  return (((group << 1) | static_cast<int>(barrier)) << kCounterBits) | counter;
}

class GlooWork final : public Work {
 public:
  GlooWork(std::shared_ptr<Link> link, std::string what) : link_(std::move(link)), what_(std::move(what)) {}

  void send(const at::Tensor& tensor, int peer, int tag) {
    sends_.push_back(link_->mesh->send(tensor, peer, tag, what_));
  }
  void recv(const at::Tensor& tensor, int peer, int tag) {
    receives_.push_back(link_->mesh->recv(tensor, peer, tag, what_));
  }
  // Sets a function that wait() calls after the last message.
  void then(std::function<void()> finish) { finish_ = std::move(finish); }

  void wait() override {
    for (auto* const transfers : {&receives_, &sends_}) {
      for (auto& transfer : *transfers) transfer->wait(link_->deadline.load());
      transfers->clear();
    }
    if (finish_) std::exchange(finish_, nullptr)();
  }

 private:
  std::shared_ptr<Link> link_;
  std::string what_;
  std::vector<std::unique_ptr<GlooMesh::Transfer>> receives_;
  std::vector<std::unique_ptr<GlooMesh::Transfer>> sends_;
  std::function<void()> finish_;
};

at::Tensor part(const at::Tensor& flat, int index, int count) {
  const auto length = flat.numel() / count;
  return flat.narrow(0, index * length, length);
}

at::Tensor empty_message(std::span<const at::Tensor> tensors) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return at::empty({bytes}, at::TensorOptions(at::kByte));
}

at::Tensor packed(std::span<const at::Tensor> tensors) {
  at::Tensor message = empty_message(tensors);
  auto* target = static_cast<std::byte*>(message.mutable_data_ptr());
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.is_cpu() && tensor.is_contiguous(), "contiguous tensors of the CPU expected");
    if (tensor.nbytes() > 0) std::memcpy(target, tensor.const_data_ptr(), tensor.nbytes());
    target += tensor.nbytes();
  }
  return message;
}

void unpack(const at::Tensor& message, std::span<const at::Tensor> targets) {
  const auto* source = static_cast<const std::byte*>(message.const_data_ptr());
  for (const at::Tensor& target : targets) {
    if (target.nbytes() > 0) std::memcpy(target.mutable_data_ptr(), source, target.nbytes());
    source += target.nbytes();
  }
}

void require(bool condition, const char* operation, std::string_view what, const char* expectation) {
  if (!condition) throw std::invalid_argument(fmt::format("{}, {}: {}", operation, what, expectation));
}

// Reduces the parts of `count` ranks in rank order. Partial sums of 16-bit floats are kept in fp32 and rounded once.
void reduce_in_rank_order(const at::Tensor& parts, int count, ReduceOp op, const at::Tensor& out) {
  const bool widen = op == ReduceOp::sum && at::isReducedFloatingType(out.scalar_type());
  at::Tensor total =
      part(parts, 0, count).to(widen ? at::kFloat : out.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  for (int rank = 1; rank < count; ++rank) {
    if (op == ReduceOp::sum) {
      total.add_(part(parts, rank, count));
    } else {
      at::maximum_out(total, total, part(parts, rank, count));
    }
  }
  out.copy_(total.view_as(out));
}

class GlooCommunicator final : public Communicator {
 public:
  // members: the mesh rank of each rank of this group.
  GlooCommunicator(std::shared_ptr<Link> link, GroupTag group, std::vector<int> members)
      : link_(std::move(link)), group_(std::move(group)), members_(std::move(members)) {
    const auto self = std::ranges::find(members_, link_->mesh->rank());
    rank_ = static_cast<int>(self - members_.begin());
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(members_.size()); }
  [[nodiscard]] std::string description() const override { return "Gloo"; }
  void set_deadline(Clock::time_point deadline) override { link_->deadline = deadline; }
  void abort() override { link_->mesh->abort("abort was called"); }

  // Several tensors are packed into one message.
  WorkPtr exchange_many(std::span<const at::Tensor> sends, int to, std::span<const at::Tensor> receives, int from,
                        std::string_view what) override {
    const bool one = sends.size() == 1 && receives.size() == 1;
    const at::Tensor send = one ? sends.front() : packed(sends);
    const at::Tensor recv = one ? receives.front() : empty_message(receives);
    require((to == rank_) == (from == rank_), "exchange", what, "a rank that sends to itself receives from itself");
    require(to != rank_ || send.numel() == recv.numel(), "exchange", what, "an exchange with itself keeps its size");
    auto work = begin("exchange", what);
    if (to == rank_) {
      recv.view(-1).copy_(send.view(-1));
    } else {
      work->send(send, member(to), tag());
      work->recv(recv, member(from), tag());
    }
    if (!one) work->then([recv, targets = std::vector(receives.begin(), receives.end())] { unpack(recv, targets); });
    return work;
  }

  WorkPtr all_gather(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    require(out.numel() == in.numel() * size(), "all_gather", what, "out holds size() times the elements of in");
    auto work = begin("all_gather", what);
    swap_parts(*work, out.view(-1), [&in](int /*to*/) { return in.view(-1); });
    return work;
  }

  WorkPtr reduce_scatter(at::Tensor& out, const at::Tensor& in, std::string_view what) override {
    require(in.numel() == out.numel() * size(), "reduce_scatter", what, "in holds size() times the elements of out");
    auto work = begin("reduce_scatter", what);
    const at::Tensor received = at::empty({in.numel()}, in.options());
    swap_parts(*work, received, [&](int to) { return part(in.view(-1), to, size()); });
    work->then([received, out, count = size()] { reduce_in_rank_order(received, count, ReduceOp::sum, out); });
    return work;
  }

  WorkPtr all_reduce(at::Tensor& inout, ReduceOp op, std::string_view what) override {
    auto work = begin("all_reduce", what);
    const at::Tensor received = at::empty({inout.numel() * size()}, inout.options());
    swap_parts(*work, received, [&inout](int /*to*/) { return inout.view(-1); });
    work->then([received, inout, op, count = size()] { reduce_in_rank_order(received, count, op, inout); });
    return work;
  }

  void checked_barrier(std::int64_t tag, milliseconds limit) override;
  [[nodiscard]] std::vector<BegunInGroup> begun() const override;

 private:
  CpGroups divide(const Division& division) override;
  [[nodiscard]] BegunInGroup begun_in_part() const;
  [[nodiscard]] std::array<std::int64_t, kPlaceSize> place(std::int64_t tag) const;
  [[nodiscard]] std::array<std::int64_t, kAnswerSize> first_difference(const at::Tensor& places) const;
  [[nodiscard]] std::string describe_difference(const at::Tensor& answer) const;
  // The first rank of that rank's group of this kind; rank 0 if this barrier does not compare such groups.
  [[nodiscard]] int leader_of(int rank, CpGroup group) const {
    if (!group_.has_all_ranks() || group == CpGroup::cp) return 0;
    const GroupRanks ranks = group_ranks(rank, size());
    const std::vector<int>& members = group == CpGroup::inner ? ranks.inner : ranks.outer;
    return members.empty() ? rank : members.front();
  }
  [[nodiscard]] int member(int rank) const { return members_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] int tag() const { return make_tag(group_, /*barrier=*/false, operations_); }

  std::unique_ptr<GlooWork> begin(const char* operation, std::string_view what) {
    ++operations_;
    if (group_.division.empty()) {
      ++link_->operations.at(index_of(group_.group));
      link_->proved_tag.reset();
    }
    return std::make_unique<GlooWork>(link_, fmt::format("{}, {}", operation, what));
  }

  // Sends part_for(r) to each rank r, and receives what rank r sends in part r of `out`.
  template <typename PartFor>
  void swap_parts(GlooWork& work, const at::Tensor& out, const PartFor& part_for) {
    for_each_peer([&](int peer) { work.send(part_for(peer), member(peer), tag()); });
    for_each_peer([&](int peer) { work.recv(part(out, peer, size()), member(peer), tag()); });
    part(out, rank_, size()).copy_(part_for(rank_));
  }

  // Visits the next rank first, so that not all ranks begin with the same peer.
  template <typename Visit>
  void for_each_peer(Visit&& visit) {
    for (int distance = 1; distance < size(); ++distance) visit((rank_ + distance) % size());
  }

  std::shared_ptr<Link> link_;
  GroupTag group_;
  std::vector<int> members_;
  int rank_;
  std::uint64_t operations_ = 0;
  std::uint64_t barriers_ = 0;
};

// Makes the communicators of a rank. They use the connections of the link.
CpGroups groups_on(const std::shared_ptr<Link>& link, const Division& division) {
  return make_groups(
      link->mesh->rank(), link->mesh->size(), division, [&](CpGroup group, const std::vector<int>& members) {
        return std::make_shared<GlooCommunicator>(link, GroupTag{.division = division, .group = group}, members);
      });
}

CpGroups GlooCommunicator::divide(const Division& division) {
  return groups_on(link_, division);
}

void GlooCommunicator::checked_barrier(std::int64_t tag, milliseconds limit) {
  if (group_.division.empty() && !group_.has_all_ranks() && link_->proved_tag == tag) return;
  // Ranks that wait for rank 0's answer give up later than rank 0, which knows which rank is missing.
  const auto deadline = Clock::now() + limit;
  const auto answer_deadline = deadline + std::clamp(limit / 20, kLeastPatience, kMostPatience);
  const std::string what = fmt::format("barrier with tag {}", tag);
  const int message_tag = make_tag(group_, /*barrier=*/true, ++barriers_);
  const auto numbers = at::TensorOptions().dtype(at::kLong);
  const at::Tensor own = at::empty({kPlaceSize}, numbers);
  std::ranges::copy(place(tag), own.mutable_data_ptr<std::int64_t>());
  at::Tensor answer = at::empty({kAnswerSize}, numbers);
  std::vector<std::unique_ptr<GlooMesh::Transfer>> transfers;
  const auto wait_for_all = [&](Clock::time_point until) {
    for (auto& transfer : transfers) transfer->wait(until);
    transfers.clear();
  };
  if (rank_ == 0) {
    const at::Tensor places = at::empty({size(), kPlaceSize}, numbers);
    places.select(0, 0).copy_(own);
    for_each_peer([&](int peer) {
      transfers.push_back(link_->mesh->recv(places.select(0, peer), member(peer), message_tag, what));
    });
    wait_for_all(deadline);
    std::ranges::copy(first_difference(places), answer.mutable_data_ptr<std::int64_t>());
    for_each_peer([&](int peer) { transfers.push_back(link_->mesh->send(answer, member(peer), message_tag, what)); });
  } else {
    transfers.push_back(link_->mesh->recv(answer, member(0), message_tag, what));
    transfers.push_back(link_->mesh->send(own, member(0), message_tag, what));
  }
  wait_for_all(answer_deadline);

  const std::string difference = describe_difference(answer);
  if (difference.empty()) {
    if (group_.has_all_ranks()) link_->proved_tag = tag;
    return;
  }
  const std::string text = fmt::format("rank {}: {}: {}", link_->mesh->rank(), what, difference);
  link_->mesh->abort(text);
  throw CommError(CommError::Kind::failed, text);
}

std::vector<BegunInGroup> GlooCommunicator::begun() const {
  std::vector<BegunInGroup> out;
  for (const CpGroup group : {CpGroup::cp, CpGroup::inner, CpGroup::outer}) {
    out.push_back({.group = kGroupWords.at(index_of(group)),
                   .first_rank = member(leader_of(rank_, group)),
                   .operations = static_cast<std::int64_t>(link_->operations.at(index_of(group)))});
  }
  for (const auto& [division, groups] : made_divisions()) {
    for (const auto& group : {groups.cp, groups.inner, groups.outer}) {
      if (group) out.push_back(static_cast<const GlooCommunicator&>(*group).begun_in_part());
    }
  }
  return out;
}

BegunInGroup GlooCommunicator::begun_in_part() const {
  const int inner = group_.division.inner;
  return {
      .group = fmt::format("{} in the groups {}{}", kGroupWords.at(index_of(group_.group)), groups_of(group_.division),
                           inner == kPair ? "" : fmt::format(" with inner groups of {}", inner)),
      .first_rank = member(0),
      .operations = static_cast<std::int64_t>(operations_)};
}

// The tag, then how many operations this rank has begun in each kind of group that this barrier compares.
std::array<std::int64_t, kPlaceSize> GlooCommunicator::place(std::int64_t tag) const {
  std::array<std::int64_t, kPlaceSize> out{tag};
  for (const CpGroup group : {CpGroup::cp, CpGroup::inner, CpGroup::outer}) {
    const bool proved = group_.has_all_ranks() || group == CpGroup::cp;
    const std::uint64_t count = group_.has_all_ranks() ? link_->operations.at(index_of(group)) : operations_;
    out.at(1 + index_of(group)) = proved ? static_cast<std::int64_t>(count) : 0;
  }
  return out;
}

// Returns all zeros if every rank has the tag and the operations of the first rank of its group. Otherwise describes a
// rank that has not: 1, the rank, the group's first rank, the kind of group, tag and operations of the rank, tag and
// operations of the first rank.
std::array<std::int64_t, kAnswerSize> GlooCommunicator::first_difference(const at::Tensor& places) const {
  const auto row = places.accessor<std::int64_t, 2>();
  for (int r = 1; r < size(); ++r) {
    for (const CpGroup group : {CpGroup::cp, CpGroup::inner, CpGroup::outer}) {
      const int leader = leader_of(r, group);
      const auto column = static_cast<int>(1 + index_of(group));
      if (row[r][0] == row[leader][0] && row[r][column] == row[leader][column]) continue;
      return {1, r, leader, static_cast<int>(group), row[r][0], row[r][column], row[leader][0], row[leader][column]};
    }
  }
  return {};
}

std::string GlooCommunicator::describe_difference(const at::Tensor& answer) const {
  const auto told = answer.accessor<std::int64_t, 1>();
  if (told[0] == 0) return {};
  const char* const of_group = kGroupWords.at(static_cast<std::size_t>(told[3]));
  return fmt::format("rank {} is at tag {} after {} operations{}, but rank {} at tag {} after {}",
                     member(static_cast<int>(told[1])), told[4], told[5], of_group, member(static_cast<int>(told[2])),
                     told[6], told[7]);
}

}  // namespace

CpGroups make_gloo_groups(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix, int rank, int size,
                          const GlooOptions& options) {
  const auto prefixed = c10::make_intrusive<c10d::PrefixStore>(prefix, store);
  auto link = std::make_shared<Link>();
  link->mesh = GlooMesh::connect(prefixed, rank, size, options);
  return groups_on(link, {});
}

}  // namespace cp_pool
