// Types and functions that the communication types share. Each type has a forward and a backward over packed tensors
// (layout.h). The dispatcher (context_parallel.cpp) converts layouts and computes delta and the gradient of the sink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cp_core/attention/attend.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/comm/windows.h"
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
// The factor of q . k: 1 / sqrt(head_dim_qk).
double scale_of(const AttentionProblem& problem);
PackedInputs pack_inputs(const AttentionProblem& problem, const AttentionInputs& inputs);

// K and V of the rows that one rank owns.
struct KeyValues {
  at::Tensor k;
  at::Tensor v;
};

// Tensors that a forward received and the backward of the same rank reuses, so that they are not sent twice. This
// struct keeps nothing; a communication type that keeps some tensors derives its own struct from it.
struct SavedForward {
  SavedForward() = default;
  SavedForward(const SavedForward&) = delete;
  SavedForward& operator=(const SavedForward&) = delete;
  virtual ~SavedForward() = default;
};

struct PackedForward {
  at::Tensor out;        // [q tokens, heads, head_dim_v], dtype of q
  at::Tensor lse;        // fp32 [heads, q tokens]
  at::Tensor max_logit;  // fp32 [heads] over all ranks; undefined if not asked for
  std::shared_ptr<const SavedForward> saved = std::make_shared<SavedForward>();
};

// Returns the tiles of these runs, merged unless there is a bias, in groups.
TilePlan make_plan(const AttentionProblem& problem, const std::vector<Run>& q_runs, const std::vector<Run>& k_runs);

// Allocates [rows, heads, dim] for rows that arrive from another rank, uninitialised. like: has the heads and dim.
at::Tensor make_inbox(const at::Tensor& like, std::int64_t rows, at::ScalarType dtype);

// Returns a put of rows of a packed tensor into the peer's window, from row `rows.target` on. The window's rows have
// the same width.
PeerWindows::Put put_rows(const at::Tensor& source, const RowCopy& rows, int peer, std::size_t window);

// One of `count` groups of heads, all of one size, so that one group can be computed while another is transferred.
struct HeadGroup {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

// A view of the group's heads. dim: the dimension of the heads.
at::Tensor narrowed(const at::Tensor& tensor, std::int64_t dim, HeadGroup group);

// The operands with q, k and v narrowed to the group's heads.
AttentionOperands narrowed(const AttentionOperands& operands, HeadGroup group);
// The same for the operands of the backward. delta and out may be undefined, and stay so.
AttentionBackwardOperands narrowed(const AttentionBackwardOperands& backward, HeadGroup group);

// True if the problem has a bias with a gradient.
bool has_dbias(const AttentionProblem& problem);

// Adds the sink, if there is one, to the softmax of the valid rows of q_runs, and rounds the output to dtype.
PackedForward finish_forward(const AttentionProblem& problem, const std::vector<Run>& q_runs, const at::Tensor& sink,
                             at::ScalarType dtype, AttentionSums sums);

// Rounds gradients that are fp32 sums to the dtype of q, once, at the end. Those of a single kernel call stay as they
// are.
PackedGradients finish_backward(const AttentionOperands& operands, const PackedGradients& gradients);

}  // namespace cp_pool
