// What the communication types share. Each type has a forward and a backward over packed tensors (layout.h). The
// dispatcher (context_parallel.cpp) converts layouts and computes delta and the gradient of the sink.
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

// K and V of the rows that one rank owns.
struct KeyValues {
  at::Tensor k;
  at::Tensor v;
};

// Tensors that a forward received and the backward of the same rank reuses, so that they are not sent twice.
struct SavedForward {
  // The operands of one group of heads, and the result of the attention over it.
  struct Heads {
    AttentionOperands operands;
    at::Tensor out;  // [q tokens of the group, heads of the group, head_dim_v], dtype of q
    at::Tensor lse;  // fp32 [heads of the group, q tokens of the group]
    KeyValues last;  // as SavedForward::last, for these heads
  };

  KeyValues last;                  // p2p: K and V of the ring's last step; undefined in a ring of one
  std::vector<Heads> head_groups;  // a2a, a2a+p2p
};

struct PackedForward {
  at::Tensor out;        // [q tokens, heads, head_dim_v], dtype of q
  at::Tensor lse;        // fp32 [heads, q tokens]
  at::Tensor max_logit;  // fp32 [heads] over all ranks; undefined if not asked for
  SavedForward saved{};  // NOLINT(readability-redundant-member-init): as AttentionGradientSums::turn
};

// Packed gradients in the dtype of the inputs; dbias in fp32.
struct PackedGradients {
  at::Tensor dq;
  at::Tensor dk;
  at::Tensor dv;
  at::Tensor dbias;
};

// The tiles of these runs, merged where allowed.
TilePlan make_plan(const AttentionProblem& problem, const std::vector<Run>& q_runs, const std::vector<Run>& k_runs);

// Allocates [rows, heads, dim] for rows that arrive from another rank, uninitialised. like: has the heads and dim.
at::Tensor make_inbox(const at::Tensor& like, std::int64_t rows, at::ScalarType dtype);

// Puts rows of a packed tensor into the peer's window, from row `rows.target` on. Rows of both are equally wide.
Communicator::Put put_rows(const at::Tensor& source, const RowCopy& rows, int peer, std::size_t window);

// True if the problem has a bias with a gradient.
bool has_dbias(const AttentionProblem& problem);

// Joins the sink, if there is one, at the valid rows of q_runs, and rounds the output to dtype.
PackedForward finish_forward(const AttentionProblem& problem, const std::vector<Run>& q_runs, const at::Tensor& sink,
                             at::ScalarType dtype, AttentionSums sums);

// Rounds the sums once, at the end.
PackedGradients finish_backward(const AttentionOperands& operands, const AttentionGradientSums& sums);

}  // namespace cp_pool
