// Our own attention works on dual chunks of whole sequences and does not know tokens that every rank holds. A case with
// replicated tokens is therefore converted to that form before a step, and its results are converted back. For each
// conversion the ranks gather the rows of all ranks, and each copies out the rows that it needs, each row of the
// problem once. That is simple, but moves more data than a step that left replicated rows where they are.
#pragma once

#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cases/lengths.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/context_parallel/context_parallel.h"
#include "cp_core/partition.h"
#include "cp_core/verify/rank_view.h"
#include "cp_core/verify/reference.h"

namespace cp_pool {

// The problem as our attention computes it: in thd, with whole sequences padded to multiples of 2 * cp_size.
AttentionProblem whole_sequences_problem(const Case& c, const SequenceLengths& lengths);

// Returns the rows of all ranks, rank by rank. Collective over cp; every rank has as many rows. what: in errors.
at::Tensor gathered(Communicator& cp, const at::Tensor& rows, std::string_view what);

// Converts between a rank's shards of a case and the inputs and results of a step on whole sequences. All arguments of
// the constructor must outlive this; cp must have as many ranks as the case. Every method is collective over cp.
class WholeSequences {
 public:
  WholeSequences(const Case& c, const SequenceLengths& lengths, Communicator& cp);

  [[nodiscard]] AttentionInputs inputs(const verify::Shards& shards) const;
  [[nodiscard]] at::Tensor dout(const verify::Shards& shards) const;

  // Fill this rank's results from those of the step.
  void fill(const AttentionForward& forward, verify::Results& results) const;
  void fill(const AttentionGradients& gradients, const verify::Shards& shards, verify::Results& results) const;

 private:
  // The copies from the gathered rows of all ranks, rank by rank, to the rows of this rank, for queries or for keys.
  struct Side {
    std::int64_t shard_rows = 0;  // rows of a rank's shard
    std::int64_t whole_rows = 0;  // rows of a rank in the step
    std::vector<RowCopy> to_whole;
    std::vector<RowCopy> cut_to_shard;
    std::vector<RowCopy> replicated_to_shard;
  };
  // whole: the padded lengths of whole sequences.
  [[nodiscard]] Side make_side(const std::vector<std::int64_t>& valid, const std::vector<std::int64_t>& padded,
                               const std::vector<std::int64_t>& whole, bool keys) const;

  // Convert the packed rows of a shard to those of the step, and back. Padding rows are 0, or `padding`.
  [[nodiscard]] at::Tensor whole(const Side& side, const at::Tensor& rows, std::string_view what) const;
  [[nodiscard]] at::Tensor shard(const Side& side, const std::vector<RowCopy>& replicated, const at::Tensor& rows,
                                 std::string_view what, double padding = 0) const;
  [[nodiscard]] at::Tensor whole_bias(const at::Tensor& bias) const;
  [[nodiscard]] at::Tensor shard_of_dbias(const at::Tensor& dbias, const at::Tensor& bias) const;

  const Case& case_;
  const SequenceLengths& lengths_;
  SequenceLengths whole_lengths_;
  Communicator& cp_;
  Side q_;
  Side kv_;
};

}  // namespace cp_pool
