// Gradients of others' K and V on their way to the ranks that own the rows.
#pragma once

#include <string_view>
#include <vector>

#include "cp_core/context_parallel/core.h"
#include "cp_core/context_parallel/step_gradients.h"

namespace cp_pool {

// What a rank's steps with others' K and V give. dk and dv of one part have the same rows, of whole sequences and in
// ascending order: those of a call, as its kernel rounded them, or fp32 sums, all rows, as the only part.
struct OthersGradients {
  std::vector<SomeRows> dq;
  std::vector<KeyGradients> parts;
};

// Where ranks have windows, each puts the rows of its parts that are another's into that one's inbox. Else a message
// holds the rows of a part that are the receiver's, straight from where they lie; many short pieces are copied to a
// place without gaps before. The calls of a rank, and so whether it sends what they give or sums, are known
// to all ranks (others_calls).
class ScatteredGradients {
 public:
  // order: from the rows of all ranks, rank by rank, to whole sequences. context must outlive this.
  ScatteredGradients(const Context& context, const std::vector<RowCopy>& order);

  // Makes room for what will come, on the current stream. whole: the operands with K and V of all ranks.
  void make_inboxes(const AttentionOperands& whole);
  // Then begins to send this rank's parts. Behind the current stream.
  void send_all(const std::vector<KeyGradients>& own);

  // Adds what has come to this rank's own, in the order of ranks, steps and calls.
  void add_to(RowSum& dk, RowSum& dv);

 private:
  [[nodiscard]] Communicator::WorkPtr put(const std::vector<KeyGradients>& own, std::string_view what);
  [[nodiscard]] Communicator::WorkPtr exchange(const std::vector<KeyGradients>& own, std::string_view what);
  void send(const KeyGradients& part);
  // What rank `from` sends here.
  void receive(int from, const AttentionOperands& whole);
  [[nodiscard]] const std::vector<RowCopy>& owned_by(int rank) const { return owned_[static_cast<std::size_t>(rank)]; }

  const Context& context_;
  Communicator& cp_;
  std::vector<std::vector<RowCopy>> owned_;  // by rank: from its rows to whole sequences
  std::vector<at::Tensor> sources_;          // put: of dk and dv, part by part
  std::vector<at::Tensor> inboxes_;          // put: of dk and dv, rank by rank without this one
  std::vector<Communicator::Message> sends_;
  std::vector<Communicator::Message> receives_;
  std::vector<SomeRows> dk_;  // come, as rows of this rank
  std::vector<SomeRows> dv_;
  Communicator::WorkPtr work_;
};

}  // namespace cp_pool
