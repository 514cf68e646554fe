// What the communication types share. Each type has a forward and a backward over packed tensors (layout.h); layouts,
// delta and the sink's gradient are the dispatcher's (context_parallel.cpp).
#pragma once

#include <cstddef>

#include "cp_core/attention/attend.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/context_parallel/context_parallel.h"
#include "cp_core/partition.h"

namespace cp_pool {

struct Context {
  const AttentionProblem& problem;
  const CpGroups& groups;
  AttentionBackend& backend;
};

struct PackedInputs {
  AttentionOperands operands;
  at::Tensor sink;  // fp32 [heads], undefined for a vanilla softmax
};

// Of the rows that one rank owns.
struct KeyValues {
  at::Tensor k;
  at::Tensor v;
};

// What a forward keeps for the backward of the same rank, so that it need not travel twice.
struct SavedForward {
  // What came of one group of heads, and what the attention over it gave.
  struct Heads {
    AttentionOperands operands;
    at::Tensor out;  // [q tokens of the group, heads of the group, head_dim_v], dtype of q
    at::Tensor lse;  // fp32 [heads of the group, q tokens of the group]
    KeyValues last;  // as below
  };

  KeyValues last;                  // p2p: those that the last step held; undefined in a ring of one
  std::vector<Heads> head_groups;  // a2a, a2a+p2p
};

struct PackedForward {
  at::Tensor out;        // [q tokens, heads, head_dim_v], dtype of q
  at::Tensor lse;        // fp32 [heads, q tokens]
  at::Tensor max_logit;  // fp32 [heads] over all ranks; undefined if not asked for
  SavedForward saved{};  // NOLINT(readability-redundant-member-init): as AttentionGradientSums::turn
};

// In the dtype of the inputs; dbias in fp32.
struct PackedGradients {
  at::Tensor dq;
  at::Tensor dk;
  at::Tensor dv;
  at::Tensor dbias;
};

// The tiles of these runs, merged where allowed.
TilePlan make_plan(const AttentionProblem& problem, const std::vector<Run>& q_runs, const std::vector<Run>& k_runs);

// Where rows like these, [rows, heads, dim], arrive from another rank: memory that holds anything.
at::Tensor make_inbox(const at::Tensor& like, std::int64_t rows, at::ScalarType dtype);

// Rows of a packed tensor like these put to a peer: to those from `rows.target` on in its window, which is as wide.
Communicator::Put put_rows(const at::Tensor& source, const RowCopy& rows, int peer, std::size_t window);

// True if the problem has a bias with a gradient.
bool has_dbias(const AttentionProblem& problem);

// Joins the sink, if there is one, at the valid rows of q_runs, and rounds the output to dtype.
PackedForward finish_forward(const AttentionProblem& problem, const std::vector<Run>& q_runs, const at::Tensor& sink,
                             at::ScalarType dtype, AttentionSums sums);

// Rounds the sums once, at the end.
PackedGradients finish_backward(const AttentionOperands& operands, const AttentionGradientSums& sums);

}  // namespace cp_pool
