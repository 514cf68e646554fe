// Trades the split over tokens for a split over heads inside a group of ranks, and back: each rank gives the tokens it
// holds of all heads, and gets the tokens of the whole group of its block of heads, or the reverse.
#pragma once

#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/partition.h"

namespace cp_pool {

class HeadExchange {
 public:
  // Tensors on their way; take the result once.
  class Pending {
   public:
    Pending(at::Tensor sent, at::Tensor received, Communicator::WorkPtr work)
        : sent_(std::move(sent)), received_(std::move(received)), work_(std::move(work)) {}
    // [ranks, local tokens, heads / ranks, dim]
    [[nodiscard]] const at::Tensor& wait();

   private:
    at::Tensor sent_;  // must live as long as the operation
    at::Tensor received_;
    Communicator::WorkPtr work_;
  };

  // copies: from the rows of the group's ranks, rank by rank, to the group's packed order.
  HeadExchange(Communicator& group, std::vector<RowCopy> copies) : group_(group), copies_(std::move(copies)) {}

  // [local tokens, heads, dim] -> [tokens of the group, heads / ranks, dim]. Heads must divide by the ranks.
  [[nodiscard]] Pending start_scatter(const at::Tensor& rows, std::string_view what) const;
  [[nodiscard]] at::Tensor finish_scatter(Pending pending) const;

  // The inverse.
  [[nodiscard]] Pending start_gather(const at::Tensor& rows, std::string_view what) const;
  [[nodiscard]] static at::Tensor finish_gather(Pending pending);

  [[nodiscard]] const std::vector<RowCopy>& copies() const { return copies_; }

 private:
  Communicator& group_;
  std::vector<RowCopy> copies_;
};

}  // namespace cp_pool
