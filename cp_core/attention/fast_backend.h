// The optional, faster interface of a backend, beyond forward and backward of one group of tiles. A function that a
// backend does not override offers nothing; a backend without any of this returns null from fast().
//   ahead        get_ready, preparations: do work in advance that the first call of a kind would take long for
//   pending      backward_pending: compute gradients before the sums that they are added to are ready
//   whole        forward_whole, backward_whole: compute a whole plan in one call, whose results need no sums
//   calls        forward_calls, called_gradients: return the results of a kernel call as it rounded them, not added to
//                fp32 sums
//   head groups  head_groups, gradients_of_heads, pipeline_groups: compute by groups of heads, so that the
//                computation of one group overlaps the exchange of another
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cp_core/attention/backend.h"

namespace cp_pool {

// The results of one call that computes a whole plan, in the dtype of q as the kernel rounded them.
struct WholeForward {
  at::Tensor out;  // [q tokens, heads, head_dim_v]
  at::Tensor lse;  // fp32 [heads, q tokens]
};

// The results of one kernel call in the dtype of q, as the kernel rounded them. `rows` says which rows of packed
// tensors they are (source: the row of out and lse; target: the packed row).
struct CalledForward {
  at::Tensor out;  // [rows, heads, head_dim_v]
  at::Tensor lse;  // fp32 [heads, rows]
  std::vector<RowCopy> rows;
};

// Sums that may not be ready yet for additions, so that a backend can compute gradients before it waits for the sums.
struct PendingSums {
  PackedGradients sums;
  // Nothing has been added yet, and the memory is uninitialised.
  bool dq_empty = false;
  bool dkv_empty = false;  // dk and dv
  // Makes the current stream wait until it may use the sums; empty if it need not wait.
  std::function<void()> turn{};  // NOLINT(readability-redundant-member-init): designated initializers leave it out

  void wait_for_turn();
  // Fill empty sums with zeros.
  void fill_dq();
  void fill_dkv();
  // Waits for the turn and fills all empty sums.
  void make_ready();
};

// Work that takes long and can be done before the calls that need it: at any time and on any thread, except during the
// capture of a CUDA graph. Throws the error that the calls would meet.
using Preparation = std::function<void()>;

class FastBackend {
 public:
  FastBackend() = default;
  FastBackend(const FastBackend&) = delete;
  FastBackend& operator=(const FastBackend&) = delete;
  virtual ~FastBackend() = default;

  // Called before the calls for these plans, to do for all of them at once the work that the first call of a kind would
  // take long for. Only sizes and dtypes of `like` are read.
  virtual void get_ready(std::span<const TilePlan> /*plans*/, const AttentionOperands& /*like*/, Pass /*pass*/) {}
  // Returns the work of get_ready in pieces, which may be done in any order or not at all, and may outlive the backend.
  // They are for the calling thread's current device. `like` may be on the meta device. `deterministic` is a parameter
  // because the global flag is that of the case that runs now.
  [[nodiscard]] virtual std::vector<Preparation> preparations(std::span<const TilePlan> /*plans*/,
                                                              const AttentionOperands& /*like*/, Pass /*pass*/,
                                                              bool /*deterministic*/) const {
    return {};
  }
  // True if backward() computes delta itself, from dout and out, where there is no bias.
  [[nodiscard]] virtual bool computes_delta() const { return false; }
  // Like AttentionBackend::backward, for sums that may not be ready: waits for their turn only after everything has
  // been enqueued that does not need them, and may write to empty sums what it would have to add to zeros. Returns
  // false, and does nothing, if the backend needs sums that are ready.
  virtual bool backward_pending(const TileGroup& /*group*/, const AttentionOperands& /*operands*/,
                                const AttentionBackwardOperands& /*backward_operands*/, PendingSums& /*pending*/) {
    return false;
  }
  // Computes the plan in one call that writes every row of the results. Returns nullopt, and does nothing, if one call
  // cannot do that, or if there is a bias.
  virtual std::optional<WholeForward> forward_whole(const TilePlan& /*plan*/, const AttentionOperands& /*operands*/) {
    return std::nullopt;
  }
  virtual std::optional<PackedGradients> backward_whole(const TilePlan& /*plan*/, const AttentionOperands& /*operands*/,
                                                        const AttentionBackwardOperands& /*backward_operands*/) {
    return std::nullopt;
  }
  // Computes one part (see parts()) without max_logit and returns the outputs of its calls as the kernel rounded them;
  // the calls' query rows are disjoint. Returns nothing, and does nothing, if the backend only writes fp32 results.
  virtual std::vector<CalledForward> forward_calls(const TileGroup& /*part*/, const AttentionOperands& /*operands*/) {
    return {};
  }
  // Whether the calls of a plan contribute to each row of dq, dk and dv at most once, rounded by the kernel, so that
  // called_gradients() can return the contributions. The answer depends only on the tiles and on the sizes and dtype of
  // the operands, so a rank can work it out for the plans of other ranks. The answer for a plan without tiles says
  // whether the backend offers called_gradients() at all.
  [[nodiscard]] virtual bool contributes_once(const TilePlan& /*plan*/, const AttentionOperands& /*like*/) const {
    return false;
  }
  // Returns the gradients of a plan for which contributes_once() is true: dq has the rows of query_rows_of(), dk and dv
  // have those of key_rows_of().
  virtual PackedGradients called_gradients(const TilePlan& /*plan*/, const AttentionOperands& /*operands*/,
                                           const AttentionBackwardOperands& /*backward_operands*/) {
    return {};
  }
  // The number of groups of heads in which gradients_of_heads() can compute a plan without being much slower; 1 if it
  // cannot.
  [[nodiscard]] virtual std::int64_t head_groups(const TilePlan& /*plan*/, const AttentionOperands& /*like*/) const {
    return 1;
  }
  // Computes the gradients of some heads of a plan for which head_groups() is more than 1. Operands and results are
  // packed tensors narrowed to these heads. Writes all rows of the results.
  virtual void gradients_of_heads(const TilePlan& /*plan*/, const AttentionOperands& /*operands*/,
                                  const AttentionBackwardOperands& /*backward_operands*/,
                                  const PackedGradients& /*results*/) {}
  struct Pipeline {
    std::int64_t q_rows = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    bool replayed = false;  // AttentionProblem::replayed
  };
  // The number of groups of heads in which a step can be computed, one after the other, without being much slower. The
  // number divides heads and kv_heads, and is the same on every rank.
  [[nodiscard]] virtual std::int64_t pipeline_groups(const Pipeline& /*of*/) const { return 1; }
  // Cuts the group into the parts that this backend computes fastest. Together the parts have the same (query, key)
  // pairs as the group; parts may share query rows.
  [[nodiscard]] virtual std::vector<TileGroup> parts(const TileGroup& group,
                                                     const AttentionOperands& /*operands*/) const {
    return {group};
  }
};

// Returns the backend's fast(), or an interface that offers nothing if that is null.
FastBackend& fast_of(AttentionBackend& backend);

}  // namespace cp_pool
