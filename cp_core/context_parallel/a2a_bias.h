// How a bias and its gradient travel in an a2a. A bias with a matrix for each head is scattered with the heads. Of a
// bias that all heads share, every rank gets the rows of all queries of the group.
#pragma once

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

class BiasExchange {
 public:
  // The query positions of the group. by_rank: the runs of its ranks, rank by rank, as they lie before the exchange.
  // packed: the same positions in the group's packed order, as they lie after it.
  struct Rows {
    std::vector<Run> by_rank;
    std::vector<Run> packed;
  };
  // problem.bias must be set. rows: for tensors that have one sequence for each entry of the bias' batch dimension.
  BiasExchange(const AttentionProblem& problem, Communicator& group, const Rows& rows);

  // Returns the bias for all queries of the group and this rank's heads. bias: the rank's shard (context_parallel.h).
  [[nodiscard]] at::Tensor scatter(const at::Tensor& bias) const;

  // Returns the gradient of the shard, shaped like it. dbias: the fp32 gradient of what scatter() returned. Where ranks
  // of the group share a row, their gradients are summed; with thd the caller must sum the results of all ranks.
  [[nodiscard]] at::Tensor gather(const at::Tensor& dbias) const;

 private:
  [[nodiscard]] bool of_each_head() const;
  [[nodiscard]] bool replicated() const;

  const AttentionProblem& problem_;
  Communicator& group_;
  std::vector<RowCopy> copies_;
};

}  // namespace cp_pool
