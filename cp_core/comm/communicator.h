// The interface of communication that context parallelism needs. Ranks are numbered within the group. Every operation
// is asynchronous: it is complete when its Work has been waited for, and its tensors must not be touched before. A call
// may wait for the peers to begin the same operation, at most until the deadline. Tensors are contiguous, of one dtype
// and on the communicator's device; they may have no elements.
//
// An implementation must define the pure functions only. The others have a default: exchange_all calls exchange_many(),
// synchronize() has nothing to wait for, and windows(), divide() and begun() offer nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "cases/case_groups.h"
#include "cases/case_report.h"

namespace cp_pool {

// The error of a communication that failed, timed out or was aborted. what() names rank, operation, peer and step.
class CommError : public std::runtime_error {
 public:
  enum class Kind { failed, timeout, aborted };
  CommError(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  [[nodiscard]] Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

class Work {
 public:
  Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  // A Work may be destroyed without having been waited for, as happens when an exception passes through. The result of
  // the operation is then undefined.
  virtual ~Work() = default;
  // Blocks the thread (CPU) or makes the current stream wait (CUDA) until the operation is complete; on a CPU at most
  // until the communicator's deadline. On CUDA, tensors that other streams use must be kept until those streams have
  // waited for the current one. Throws CommError.
  virtual void wait() = 0;
};

enum class ReduceOp { sum, max };

class PeerWindows;
class Communicator;

// The communicators of one context-parallel group, made once when a worker starts and again after an abort.
struct CpGroups {
  std::shared_ptr<Communicator> cp;  // all ranks of the group
  // inner: `inner_ranks` neighbours (cases/comm_facts.h). outer: the ranks that have the same place in their inner
  // groups. Both are null if no communication type needs them for this number of ranks.
  std::shared_ptr<Communicator> inner;
  std::shared_ptr<Communicator> outer;
};

class Communicator {
 public:
  using Clock = std::chrono::steady_clock;
  using WorkPtr = std::unique_ptr<Work>;

  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  // The name of what carries the data, for people: "Gloo", "NCCL and peer copies".
  [[nodiscard]] virtual std::string description() const = 0;

  // Every later wait ends at the deadline with CommError::Kind::timeout. Callers set it for each case.
  virtual void set_deadline(Clock::time_point deadline) = 0;

  // Sends tensors to rank `to` as one message, while receiving those of rank `from`, which fill `receives` in order.
  // The two tensors of a pair have the same number of bytes. what, here and below: the step that error texts name, e.g.
  // "p2p forward step 2".
  [[nodiscard]] virtual WorkPtr exchange_many(std::span<const at::Tensor> sends, int to,
                                              std::span<const at::Tensor> receives, int from,
                                              std::string_view what) = 0;
  [[nodiscard]] WorkPtr exchange(const at::Tensor& send, int to, const at::Tensor& recv, int from,
                                 std::string_view what) {
    return exchange_many({&send, 1}, to, {&recv, 1}, from, what);
  }
  // A message to or from another rank. Messages from one rank to another are matched in order.
  struct Message {
    at::Tensor tensor;
    int peer = 0;
  };
  // Returns the tensors of the messages of one peer, in order.
  static std::vector<at::Tensor> of_peer(std::span<const Message> messages, int peer);
  // Exchanges messages with any number of peers in one operation, which every rank of the group must begin.
  [[nodiscard]] virtual WorkPtr exchange_all(std::span<const Message> sends, std::span<const Message> receives,
                                             std::string_view what);
  // Gathers every rank's `in` on all ranks. out: size() times the elements of in, in rank order.
  [[nodiscard]] virtual WorkPtr all_gather(at::Tensor& out, const at::Tensor& in, std::string_view what) = 0;
  // in has size() times the elements of out. out becomes the sum over all ranks of part rank() of their `in`.
  [[nodiscard]] virtual WorkPtr reduce_scatter(at::Tensor& out, const at::Tensor& in, std::string_view what) = 0;
  [[nodiscard]] virtual WorkPtr all_reduce(at::Tensor& inout, ReduceOp op, std::string_view what) = 0;

  // Returns the interface for writes into memory of peers (windows.h), which lives as long as this communicator.
  // Returns null, on all ranks, where ranks cannot do that.
  virtual PeerWindows* windows() { return nullptr; }

  // Only for a communicator of all ranks: divides the ranks into several groups and returns the communicators of this
  // rank's group. division: of size() ranks; the same on all ranks. The communicators are made by the first call, for
  // which ranks may wait until the deadline, and kept. Their deadline has to be set like that of others, and they are
  // aborted with this communicator. All are null where ranks can have no such groups.
  [[nodiscard]] virtual CpGroups divided(const Division& division);

  // A barrier that proves after a case that all ranks are at the same place. It compares `tag` and the number of
  // operations that each rank has begun on this communicator. Throws CommError, which names a rank whose values differ
  // from rank 0's or that did not arrive within `limit`; a rank that waits for rank 0's verdict waits a little longer.
  // After the barrier of the group of all ranks, no rank has another's memory open unless it holds a tensor, so the
  // owner may free memory without tensors.
  virtual void checked_barrier(std::int64_t tag, std::chrono::milliseconds limit) = 0;

  // Only for a communicator of all ranks: returns how many operations this rank has begun in each of its groups since
  // they were made. checked_barrier compares these numbers; a caller that can compare them more cheaply may do without
  // the barrier. Empty where a barrier does more than compare.
  [[nodiscard]] virtual std::vector<BegunInGroup> begun() const { return {}; }

  // Makes the host thread wait until all work on the current stream is complete, at most until the deadline. Does
  // nothing on a CPU, where operations are complete once waited for. Throws CommError: timeout, which names the oldest
  // operation that is not complete; failed, for an error that the library found later; aborted.
  virtual void synchronize(std::string_view /*what*/) {}

  // Makes every operation in flight and every later one fail, on this rank with CommError::Kind::aborted and on its
  // peers because they lose the connection. Callable from any thread, more than once. Ranks need new communicators
  // afterwards.
  virtual void abort() = 0;

 protected:
  // Makes the communicators that divided() returns.
  virtual CpGroups divide(const Division& /*division*/) { return {}; }
  [[nodiscard]] const std::map<Division, CpGroups>& made_divisions() const { return divided_; }

 private:
  std::map<Division, CpGroups> divided_;
};

// The kinds of groups in CpGroups.
enum class CpGroup { cp = 0, inner = 1, outer = 2 };

// One of the groups of a rank.
struct GroupTag {
  Division division;
  CpGroup group = CpGroup::cp;

  auto operator<=>(const GroupTag&) const = default;
  [[nodiscard]] bool has_all_ranks() const { return *this == GroupTag{}; }
  // 1 if ranks are not divided; else more, for a single group its `inner`: a number that several divisions may share.
  [[nodiscard]] int parts() const {
    const int groups = division.empty() ? 1 : 1 + std::ranges::max(division.groups);
    return groups == 1 && !division.empty() ? division.inner : groups;
  }
};

// The communicators that a case whose ranks are so divided runs on.
inline CpGroups groups_of_case(const CpGroups& all, const Division& division) {
  return division.empty() ? all : all.cp->divided(division);
}

// The world ranks in each group of a rank, in order. A group that the rank does not have is empty.
struct GroupRanks {
  std::vector<int> cp;
  std::vector<int> inner;
  std::vector<int> outer;
};
// division: of the `size` ranks into groups, each with inner and outer groups of its own.
GroupRanks group_ranks(int rank, int size, const Division& division = {});

// Returns the communicators of a rank. make: makes that of a group from the kind of group and its world ranks.
template <typename Make>
CpGroups make_groups(int rank, int size, const Division& division, const Make& make) {
  const GroupRanks ranks = group_ranks(rank, size, division);
  const auto unless_empty = [&](CpGroup group, const std::vector<int>& members) -> std::shared_ptr<Communicator> {
    return members.empty() ? nullptr : make(group, members);
  };
  return {.cp = unless_empty(CpGroup::cp, ranks.cp),
          .inner = unless_empty(CpGroup::inner, ranks.inner),
          .outer = unless_empty(CpGroup::outer, ranks.outer)};
}

// Returns the groups of a rank that is alone, with which a worker rehearses a case and times a case on one rank.
// device: that of the rank's tensors. An operation is enqueued on the current stream, and has no deadline.
CpGroups single_rank_groups(const at::Device& device = at::kCPU);

// Collective. Returns the largest value of all ranks. device: that of the communicator. Throws CommError.
int largest_anywhere(int here, Communicator& group, const at::Device& device, const char* what);
// Collective. Whether `here` is true on any rank.
bool anywhere(bool here, Communicator& group, const at::Device& device, const char* what);

}  // namespace cp_pool
