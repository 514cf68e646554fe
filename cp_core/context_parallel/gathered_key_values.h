// Gathers K and V of all ranks into whole sequences.
#pragma once

#include <string>
#include <vector>

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// Gathers K and V of the other ranks into tensors in sequence order. This rank's own rows are left uninitialised, since
// nothing reads them there. Where ranks have windows, each rank puts its rows to their places in the others' tensors.
// Otherwise rows are sent straight to their places if that takes few messages. If it does not, one message has all rows
// of a rank, and the receiver copies them to their places.
class GatheredKeyValues {
 public:
  // Starts the exchange. copies: from the rows of all ranks, rank by rank, to whole sequences. pass: for error texts.
  // cp must outlive this, and the operands' K and V must not change before wait().
  GatheredKeyValues(Communicator& cp, const AttentionOperands& operands, std::vector<RowCopy> copies, Pass pass);

  // The operands with K and V of all ranks in sequence order. Values are valid only after wait().
  [[nodiscard]] const AttentionOperands& whole() const { return whole_; }

  void wait();

 private:
  [[nodiscard]] bool go_straight() const;
  [[nodiscard]] std::vector<RowCopy> pieces(int rank) const;
  Communicator::WorkPtr put(PeerWindows& through, const AttentionOperands& operands, const std::string& what);
  Communicator::WorkPtr exchange(const AttentionOperands& operands, const std::string& what);

  Communicator& cp_;
  std::vector<RowCopy> copies_;
  std::int64_t rows_;  // rows of each rank
  AttentionOperands whole_;
  at::Tensor arriving_k_;
  at::Tensor arriving_v_;
  bool copied_ = false;
  Communicator::WorkPtr work_;
};

}  // namespace cp_pool
