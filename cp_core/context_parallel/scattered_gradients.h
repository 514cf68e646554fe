// Sends the gradients of other ranks' K and V to the ranks that own the rows.
#pragma once

#include <string_view>
#include <vector>

#include "cp_core/context_parallel/core.h"
#include "cp_core/context_parallel/step_gradients.h"

namespace cp_pool {

// The gradients that a rank computed with other ranks' K and V. dk and dv are in parts: either each call is a part, as
// its kernel rounded it, or a single part holds fp32 sums of all rows. dk and dv of a part have the same rows, which
// are rows of whole sequences in ascending order.
struct OthersGradients {
  std::vector<SomeRows> dq;
  std::vector<KeyGradients> parts;
};

// Where ranks have windows, each rank puts the rows of its parts into the inboxes of their owners. Otherwise it sends
// each owner its rows of each part: straight from the part if they are few pieces, else packed into one message. Every
// rank can derive the calls of every other rank (others_calls), and so knows which parts arrive.
class ScatteredGradients {
 public:
  // order: the copies from the rows of all ranks, rank by rank, to whole sequences. context must outlive this.
  ScatteredGradients(const Context& context, const std::vector<RowCopy>& order);

  // Allocates memory for arriving gradients on the current stream. whole: the operands with K and V of all ranks.
  void make_inboxes(const AttentionOperands& whole);
  // Starts to send this rank's parts, after the current stream's work. Must be called after make_inboxes().
  void send_all(const std::vector<KeyGradients>& own);

  // Whether parts are put into windows; else they are sent as messages.
  [[nodiscard]] bool puts() const { return windows_ != nullptr; }

  // Waits for the gradients of other ranks and adds them to those of this rank, in the order of ranks, steps and calls.
  void add_to(RowSum& dk, RowSum& dv);

 private:
  [[nodiscard]] Communicator::WorkPtr put(const std::vector<KeyGradients>& own, std::string_view what);
  [[nodiscard]] Communicator::WorkPtr exchange(const std::vector<KeyGradients>& own, std::string_view what);
  void send(const KeyGradients& part);
  // Allocates memory for the parts that rank `from` sends to this rank, and its messages.
  void receive(int from, const AttentionOperands& whole);
  [[nodiscard]] const std::vector<RowCopy>& owned_by(int rank) const { return owned_[static_cast<std::size_t>(rank)]; }

  const Context& context_;
  Communicator& cp_;
  PeerWindows* windows_;                     // null where ranks have none
  std::vector<std::vector<RowCopy>> owned_;  // by rank: the copies from its rows to whole sequences
  std::vector<at::Tensor> sources_;          // for put(): dk and dv of this rank, part by part
  std::vector<at::Tensor> inboxes_;          // dk and dv that arrive, rank by rank without this rank
  std::vector<Communicator::Message> sends_;
  std::vector<Communicator::Message> receives_;
  std::vector<SomeRows> dk_;  // parts that arrive, as rows of this rank
  std::vector<SomeRows> dv_;
  Communicator::WorkPtr work_;
};

}  // namespace cp_pool
