// Exchanges a bias and its gradient among the ranks of an a2a.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/context_parallel/context_parallel.h"
#include "cp_core/context_parallel/head_exchange.h"
#include "cp_core/partition.h"

namespace cp_pool {

// A bias with a matrix for each head is scattered by heads, as q is. A bias that all heads share is gathered, so that
// every rank has the rows of all queries of the group. A bias that every rank holds whole (thd, shape 111s) is not
// exchanged.
class BiasExchange {
 public:
  // The query positions of the group, in their order before and after the exchange.
  struct Rows {
    std::vector<Run> by_rank;         // before: the positions of the group's ranks, rank by rank
    std::vector<Run> packed;          // after: the same positions in the group's packed order
    std::vector<std::int64_t> heads;  // GroupRows::heads of q
  };
  // problem.bias must be set. rows: with one sequence for each entry of the bias' batch dimension.
  BiasExchange(const AttentionProblem& problem, Communicator& group, const Rows& rows);

  // Returns the bias for all queries of the group and this rank's heads. bias: this rank's shard (context_parallel.h).
  [[nodiscard]] at::Tensor scatter(const at::Tensor& bias) const;

  // Returns the gradient of this rank's shard, shaped like the shard. dbias: the fp32 gradient of the tensor that
  // scatter() returned. Gradients of ranks that share rows of the bias are summed, except in thd, where the caller must
  // sum the results of all ranks.
  [[nodiscard]] at::Tensor gather(const at::Tensor& dbias) const;

 private:
  [[nodiscard]] bool of_each_head() const;
  [[nodiscard]] bool replicated() const;

  const AttentionProblem& problem_;
  Communicator& group_;
  GroupRows rows_;
};

}  // namespace cp_pool
