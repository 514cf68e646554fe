// The optional interface of a backend beyond forward and backward of one group of tiles, to be faster. A function that
// a backend does not override offers nothing, and other backends need not know this interface.
//   ahead        get_ready, preparations: work that takes long for the first call of a kind
//   whole        forward_whole, backward_whole: a plan in one call, whose results are those of the rank
//   calls        forward_calls, called_gradients: results of a kernel call as it rounded them, not added to fp32 sums
//   head groups  a plan, or a whole step, by groups of heads, so that one group overlaps the exchange of another
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cp_core/attention/backend.h"

namespace cp_pool {

// The results of one call that computes a whole plan, in the dtype of q. Nothing is summed.
struct WholeForward {
  at::Tensor out;  // [q tokens, heads, head_dim_v]
  at::Tensor lse;  // fp32 [heads, q tokens]
};
// Packed gradients in the dtype of the inputs.
struct PackedGradients {
  at::Tensor dq;
  at::Tensor dk;
  at::Tensor dv;
  // fp32; undefined where the bias has none.
  at::Tensor dbias{};  // NOLINT(readability-redundant-member-init): designated initializers leave it out
};

// The results of one kernel call in the dtype of q, as the kernel rounded them: some rows of packed tensors.
struct CalledForward {
  at::Tensor out;  // [rows, heads, head_dim_v]
  at::Tensor lse;  // fp32 [heads, rows]
  std::vector<RowCopy> rows;
};

// Work that takes long and can be done before the calls that need it: at any time, on any thread, beside anything but
// the capture of a graph. Throws the error that the calls would meet.
using Preparation = std::function<void()>;

class FastBackend {
 public:
  FastBackend() = default;
  FastBackend(const FastBackend&) = delete;
  FastBackend& operator=(const FastBackend&) = delete;
  virtual ~FastBackend() = default;

  // Called before the calls for these plans, so that work which takes long for the first call of a kind is done for all
  // of them at once. Only sizes and dtypes of `like` are read.
  virtual void get_ready(std::span<const TilePlan> /*plans*/, const AttentionOperands& /*like*/, Pass /*pass*/) {}
  // Returns the work of get_ready in pieces, which may be done in any order or not at all, and may outlive the backend.
  // deterministic is a parameter because global flags belong to the case that runs. `like` may be on the meta device.
  // The pieces are for the calling thread's current device.
  [[nodiscard]] virtual std::vector<Preparation> preparations(std::span<const TilePlan> /*plans*/,
                                                              const AttentionOperands& /*like*/, Pass /*pass*/,
                                                              bool /*deterministic*/) const {
    return {};
  }
  // True if backward() works delta out for itself, from dout and out, where there is no bias.
  [[nodiscard]] virtual bool works_out_delta() const { return false; }
  // True if backward() takes sums that are empty, and leaves them filled.
  [[nodiscard]] virtual bool takes_empty_sums() const { return false; }
  // Computes the plan in one call that writes every row of the results. Returns nullopt, and does nothing, if the
  // backend needs several calls. Operands must have no bias.
  virtual std::optional<WholeForward> forward_whole(const TilePlan& /*plan*/, const AttentionOperands& /*operands*/) {
    return std::nullopt;
  }
  virtual std::optional<PackedGradients> backward_whole(const TilePlan& /*plan*/, const AttentionOperands& /*operands*/,
                                                        const AttentionBackwardOperands& /*backward_operands*/) {
    return std::nullopt;
  }
  // Computes one part (see parts()) and returns the outputs of its calls as the kernel rounded them; the calls' query
  // rows are disjoint. Returns nothing, and does nothing, if the backend only adds to fp32 sums. Without max_logit.
  virtual std::vector<CalledForward> forward_calls(const TileGroup& /*part*/, const AttentionOperands& /*operands*/) {
    return {};
  }
  // Whether the calls of a plan contribute to each row of dq, dk and dv at most once, rounded by the kernel, so that
  // called_gradients() can return the contributions. The answer depends on the tiles and on the sizes and dtype of the
  // operands alone, so a rank knows it for the plans of other ranks. For a plan without tiles it says whether the
  // backend offers this at all.
  [[nodiscard]] virtual bool contributes_once(const TilePlan& /*plan*/, const AttentionOperands& /*like*/) const {
    return false;
  }
  // Returns the gradients of a plan for which contributes_once(): dq of the rows of query_rows_of, dk and dv of those
  // of key_rows_of.
  virtual PackedGradients called_gradients(const TilePlan& /*plan*/, const AttentionOperands& /*operands*/,
                                           const AttentionBackwardOperands& /*backward_operands*/) {
    return {};
  }
  // In how many groups of heads gradients_of_heads() computes a plan without being much slower; 1: it cannot.
  [[nodiscard]] virtual std::int64_t head_groups(const TilePlan& /*plan*/, const AttentionOperands& /*like*/) const {
    return 1;
  }
  // Computes the gradients of some heads of a plan for which contributes_once(). Operands and results are packed
  // tensors narrowed to these heads. Writes all rows of the results.
  virtual void gradients_of_heads(const TilePlan& /*plan*/, const AttentionOperands& /*operands*/,
                                  const AttentionBackwardOperands& /*backward_operands*/,
                                  const PackedGradients& /*results*/) {}
  struct Pipeline {
    std::int64_t q_rows = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    bool replayed = false;  // as AttentionProblem's
  };
  // In how many groups of heads a step can be computed, one after the other, without being much slower. The number
  // divides heads and kv_heads, and is the same on every rank.
  [[nodiscard]] virtual std::int64_t pipeline_groups(const Pipeline& /*of*/) const { return 1; }
  // Cuts the group into parts that this backend computes fastest, one call each. Together they have the same pairs of
  // rows and keys; they may share query rows.
  [[nodiscard]] virtual std::vector<TileGroup> parts(const TileGroup& group,
                                                     const AttentionOperands& /*operands*/) const {
    return {group};
  }
};

// Returns the backend's fast(), or an interface that offers nothing if that is null.
FastBackend& fast_of(AttentionBackend& backend);

}  // namespace cp_pool
