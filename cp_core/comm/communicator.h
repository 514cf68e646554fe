// The interface of communication that context parallelism needs. Ranks are numbered as in the group. Every operation is
// asynchronous: it is complete when its Work has been waited for; until then its tensors must not be touched. A call
// may wait for the peers to come to the same operation, at most until the deadline. Tensors are contiguous, of one
// dtype, on the communicator's device; zero elements are allowed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/begun_in_group.h"

namespace cp_pool {

// A communication that failed, timed out or was aborted. The text names rank, operation, peer and step.
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
  // Destroying a Work that was not waited for is allowed (an exception passes through); its result is then undefined.
  virtual ~Work() = default;
  // Blocks (CPU) or makes the current stream wait (CUDA) until complete, at most until the communicator's deadline.
  // On CUDA, tensors that other streams use must be kept until those streams have waited for the current one. Throws
  // CommError.
  virtual void wait() = 0;
};

enum class ReduceOp { sum, max };

class PeerWindows;
struct CpGroups;

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
  // What carries the data, for people: "Gloo", "NCCL and peer copies".
  [[nodiscard]] virtual std::string description() const = 0;

  // Every later wait ends at the deadline with CommError::Kind::timeout. Set for each case.
  virtual void set_deadline(Clock::time_point deadline) = 0;

  // what, here and below: the step in error texts, e.g. "p2p forward step 2".
  // Sends `send` to rank `to` while receiving `recv` from rank `from`. Sizes may differ.
  [[nodiscard]] virtual WorkPtr exchange(const at::Tensor& send, int to, at::Tensor& recv, int from,
                                         std::string_view what) = 0;
  // Exchanges several tensors as one message: the sends of rank `from` fill receives, in order. The two tensors of a
  // pair have the same number of bytes.
  [[nodiscard]] virtual WorkPtr exchange_many(std::span<const at::Tensor> sends, int to,
                                              std::span<const at::Tensor> receives, int from, std::string_view what);
  // A message to or from another rank. Messages from one rank to another are matched in order.
  struct Message {
    at::Tensor tensor;
    int peer = 0;
  };
  // The tensors of the messages of one peer, in order.
  static std::vector<at::Tensor> of_peer(std::span<const Message> messages, int peer);
  [[nodiscard]] virtual WorkPtr exchange_all(std::span<const Message> sends, std::span<const Message> receives,
                                             std::string_view what);
  // out: size() times the elements of in, in rank order.
  [[nodiscard]] virtual WorkPtr all_gather(at::Tensor& out, const at::Tensor& in, std::string_view what) = 0;
  // in and out: size() equal parts along dimension 0; part r of in goes to rank r, part r of out comes from rank r.
  [[nodiscard]] virtual WorkPtr all_to_all(at::Tensor& out, const at::Tensor& in, std::string_view what) = 0;
  // all_to_all without this rank's own part of out, whose contents are undefined afterwards.
  [[nodiscard]] virtual WorkPtr trade(at::Tensor& out, const at::Tensor& in, std::string_view what) {
    return all_to_all(out, in, what);
  }
  // in: size() times the elements of out; out is the sum over ranks of part rank().
  [[nodiscard]] virtual WorkPtr reduce_scatter(at::Tensor& out, const at::Tensor& in, std::string_view what) = 0;
  [[nodiscard]] virtual WorkPtr all_reduce(at::Tensor& inout, ReduceOp op, std::string_view what) = 0;

  // Returns the interface for writes into memory of peers (peer/windows.h), which lives as long as this. Null, on all
  // ranks, where ranks cannot do that.
  virtual PeerWindows* windows() { return nullptr; }

  // Of a communicator of all ranks: the communicators of this rank's group where the ranks are cut into `groups`
  // strided groups (group_ranks). groups: divides size(); the same on all ranks. Made at the first call, and kept.
  // Their deadline has to be set as that of others; they fall with this communicator when it is aborted. All null where
  // ranks can have no such groups.
  [[nodiscard]] virtual CpGroups strided(int groups);

  // A barrier that proves after a case that all ranks are at the same place. It compares `tag` and the number of
  // operations of this communicator, and throws CommError naming a rank whose values differ from rank 0's, or that did
  // not arrive within `limit`; a rank that waits for rank 0's word about that waits a little longer. After the barrier
  // of the group of all ranks, no rank has memory of another open that holds no tensor, so its owner may free it.
  virtual void checked_barrier(std::int64_t tag, std::chrono::milliseconds limit) = 0;

  // Of a communicator of all ranks: what this rank has begun in each of its groups since they were made.
  // checked_barrier compares it; this is for those who can compare it in a cheaper way. Empty where a barrier does more
  // than that.
  [[nodiscard]] virtual std::vector<BegunInGroup> begun() const { return {}; }

  // Makes the host thread wait until all work on the current stream is complete, at most until the deadline. CPU
  // operations are complete once waited for. Throws CommError: timeout, which names the oldest operation that is not
  // complete; failed, for an error that the library found later; aborted.
  virtual void synchronize(std::string_view /*what*/) {}

  // Makes every operation in flight and every later one fail with CommError::Kind::aborted, on this rank and, through
  // the lost connection, on its peers. Callable from any thread, more than once. Ranks need new communicators
  // afterwards.
  virtual void abort() = 0;
};

// The communicators of one context-parallel group, made once when a worker starts and again after an abort.
struct CpGroups {
  std::shared_ptr<Communicator> cp;  // all ranks
  // inner: groups of `inner_ranks` neighbours (cases/comm_facts.h). outer: the ranks that have the same place in their
  // inner groups. Null if no communication type needs them for this number of ranks.
  std::shared_ptr<Communicator> inner;
  std::shared_ptr<Communicator> outer;
};

// Those that a case runs on with so many strided groups (cases/case_groups.h): all ranks if there is one group.
inline CpGroups groups_of_case(const CpGroups& all, int groups) {
  return groups == 1 ? all : all.cp->strided(groups);
}

// The ranks in each group of a rank, in order. A group that the rank does not have is empty.
struct GroupRanks {
  std::vector<int> cp;
  std::vector<int> inner;
  std::vector<int> outer;
};
// groups: into how many strided groups `size` ranks are cut, each with an inner and an outer group of its own. A rank's
// group has every rank that is the same modulo `groups` (cases/case_groups.h). One group: cp has all ranks.
GroupRanks group_ranks(int rank, int size, int groups = 1);

}  // namespace cp_pool
