// Context-parallel attention. The sequences are split over the ranks of a group. Each rank passes its shard of the
// inputs and gets back its shard of the output and of the gradients. docs/definitions.md defines the results.
//
// With n ranks, rank r owns chunks r and 2n-1-r of the 2n chunks of every sequence (dual-chunk partition, partition.h).
// A shard has its tokens in packed order: sequence by sequence, and in each chunk r before chunk 2n-1-r. lse is in
// packed order in every layout. A shard of q, k, v, an output or a gradient has the shape
//   bshd  [batch, S/n, heads, dim]
//   sbhd  [S/n, batch, heads, dim]
//   thd   [T_padded/n, heads, dim]
//
// A bias and its gradient dbias have the shape [batch or 1, heads or 1, rows, columns]
//   layout      rows                                             columns
//   bshd, sbhd  this rank's S_q/n queries of a sequence, in      all S_kv key positions
//               packed order
//   thd         all query positions, up to the longest sequence  all key positions, up to the longest sequence
// A bias of shape 111s has one row in every layout. In thd every rank holds the whole bias and gets the whole dbias,
// which is summed over ranks and is 0 outside valid lengths.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cases/lengths.h"
#include "cp_core/comm/communicator.h"

namespace cp_pool {

class AttentionBackend;
struct SavedForward;

// The problem to compute: a case, and the lengths of its whole sequences. It is the same on every rank.
struct AttentionProblem : Case {
  SequenceLengths lengths;
  // Whether the step will be captured and replayed as a CUDA graph. Cutting the step into more pieces that overlap then
  // costs the host no time.
  bool replayed = false;
};

AttentionProblem make_problem(const Case& c, const SequenceLengths& lengths);

// Creates the backend that runs the cases of `backend` on `device`. On CPUs this is always the math backend.
std::unique_ptr<AttentionBackend> make_backend(Backend backend, const at::Device& device);

// This rank's shards, in the dtype of the case. Values at padding positions never affect a result.
struct AttentionInputs {
  at::Tensor q;     // heads x head_dim_qk
  at::Tensor k;     // kv_heads x head_dim_qk
  at::Tensor v;     // kv_heads x head_dim_v
  at::Tensor bias;  // shaped as above, dtype of q; undefined if there is none
  at::Tensor sink;  // fp32 [heads], undefined unless softmax is learnable
};

struct AttentionForward {
  at::Tensor out;        // shard, heads x head_dim_v, dtype of q; 0 at padding
  at::Tensor lse;        // fp32 [heads, local tokens], packed order; -inf at padding; for rows that see no key -inf or,
                         // with a sink, the sink
  at::Tensor max_logit;  // fp32 [heads], over all ranks; undefined unless asked for
  // Tensors received from other ranks that the backward reuses. Which ones depends on the communication type.
  std::shared_ptr<const SavedForward> saved{};  // NOLINT(readability-redundant-member-init): as below
  // AttentionBackend::remarks, of this rank.
  std::vector<std::string> remarks{};  // NOLINT(readability-redundant-member-init): as PackedGradients::dbias
};

// Unlike PackedGradients (attention/backend.h), which communication types compute, these are in the layout of the
// problem.
struct AttentionGradients {
  at::Tensor dq;  // shaped and typed like the inputs; 0 at padding
  at::Tensor dk;
  at::Tensor dv;
  at::Tensor dbias;  // undefined without a bias, and for 111s
  at::Tensor dsink;  // fp32 [heads], summed over ranks; undefined unless softmax is learnable
  // AttentionBackend::remarks, of this rank.
  std::vector<std::string> remarks{};  // NOLINT(readability-redundant-member-init): as PackedGradients::dbias
};

// Collective over the groups. The functions throw CommError and BackendUnsupported.
// backend: null for the one that the problem names.
AttentionForward context_parallel_forward(const AttentionProblem& problem, const CpGroups& groups,
                                          const AttentionInputs& inputs, AttentionBackend* backend = nullptr);
// dout: shaped like out. forward: the result of context_parallel_forward on this rank.
AttentionGradients context_parallel_backward(const AttentionProblem& problem, const CpGroups& groups,
                                             const AttentionInputs& inputs, const AttentionForward& forward,
                                             const at::Tensor& dout, AttentionBackend* backend = nullptr);

}  // namespace cp_pool
