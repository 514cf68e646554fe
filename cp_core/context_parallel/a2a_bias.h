// A bias and its gradient under a2a. A bias of each head goes with its heads; of one that all heads share, every rank
// needs the rows of the group.
#pragma once

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

class BiasExchange {
 public:
  // runs_of: from the padded lengths of sequences to the rows of the group, and to its packed order.
  struct Rows {
    std::vector<Run> by_rank;
    std::vector<Run> packed;
  };
  // problem.bias must be set. rows: of a tensor with one sequence for each entry of the bias' batch dimension.
  BiasExchange(const AttentionProblem& problem, Communicator& group, const Rows& rows);

  // The shard of context_parallel.h -> the bias of the group's queries and this rank's heads.
  [[nodiscard]] at::Tensor scatter(const at::Tensor& bias) const;

  // fp32 gradient of what scatter gave -> shaped like the shard, summed over the ranks of the group where they share a
  // row. With thd: this rank's part of a sum that is left to the caller.
  [[nodiscard]] at::Tensor gather(const at::Tensor& dbias) const;

 private:
  [[nodiscard]] bool of_each_head() const;
  [[nodiscard]] bool replicated() const;

  const AttentionProblem& problem_;
  Communicator& group_;
  std::vector<RowCopy> copies_;
};

}  // namespace cp_pool
