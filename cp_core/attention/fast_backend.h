// What a backend may offer beyond forward and backward of one group of tiles, to be faster. Everything is optional: a
// function that a backend does not override offers nothing, and a backend that has nothing to offer need not know this
// interface.
//   ahead       get_ready, preparations: what takes long for the first call of a kind
//   whole       a plan in one call, whose results are those of the rank
//   calls       what a call of the kernel gives as it is, rounded to 16 bits, instead of added to fp32
//   head groups a plan, or a whole step, computed by groups of heads, so that one hides the exchange of another
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cp_core/attention/backend.h"

namespace cp_pool {

// What one call gives that computes a whole plan: in the dtype of q, and nothing is summed.
struct WholeForward {
  at::Tensor out;  // [q tokens, heads, head_dim_v]
  at::Tensor lse;  // fp32 [heads, q tokens]
};
struct WholeGradients {  // like q, k, v
  at::Tensor dq;
  at::Tensor dk;
  at::Tensor dv;
};

// What one call of a kernel gives, in the dtype of q, as the kernel rounded it; some rows of packed tensors.
struct CalledForward {
  at::Tensor out;  // [rows, heads, head_dim_v]
  at::Tensor lse;  // fp32 [heads, rows]
  std::vector<RowCopy> rows;
};
struct CalledGradients {
  at::Tensor dq;  // the rows of query_rows_of
  at::Tensor dk;  // the rows of key_rows_of
  at::Tensor dv;
};

// Something that takes long and can be done before the calls that need it: any time, any thread, beside anything but
// the capture of a graph. Throws what the calls would meet.
using Preparation = std::function<void()>;

class FastBackend {
 public:
  FastBackend() = default;
  FastBackend(const FastBackend&) = delete;
  FastBackend& operator=(const FastBackend&) = delete;
  virtual ~FastBackend() = default;

  // Said before the calls for these plans: what takes long for the first of a kind can be done for all of them at once.
  // Of `like` only sizes and dtypes are read.
  virtual void get_ready(std::span<const TilePlan> /*plans*/, const AttentionOperands& /*like*/, Pass /*pass*/) {}
  // What get_ready would do, in pieces that can be done in any order, or not at all; they may outlive the backend. The
  // mode is given: global flags belong to the case that runs. `like` may be of the meta device. To be called, and the
  // pieces to be done, on the current device of the calling thread.
  [[nodiscard]] virtual std::vector<Preparation> preparations(std::span<const TilePlan> /*plans*/,
                                                              const AttentionOperands& /*like*/, Pass /*pass*/,
                                                              bool /*deterministic*/) const {
    return {};
  }
  // True if backward() works delta out for itself, from dout and out, where there is no bias.
  [[nodiscard]] virtual bool works_out_delta() const { return false; }
  // True if backward() takes sums that are empty, and leaves them filled.
  [[nodiscard]] virtual bool takes_empty_sums() const { return false; }
  // The plan in one call that writes every row of the results; nothing, and nothing is done, if the backend cannot make
  // one call of it. Not for operands with a bias.
  virtual std::optional<WholeForward> forward_whole(const TilePlan& /*plan*/, const AttentionOperands& /*operands*/) {
    return std::nullopt;
  }
  virtual std::optional<WholeGradients> backward_whole(const TilePlan& /*plan*/, const AttentionOperands& /*operands*/,
                                                       const AttentionBackwardOperands& /*backward_operands*/) {
    return std::nullopt;
  }
  // One part (see parts()) by calls whose outputs are given as they are, one for each call; the calls' query rows are
  // disjoint. Empty, and nothing is done, if the backend adds to fp32 only. Without max_logit.
  virtual std::vector<CalledForward> forward_calls(const TileGroup& /*part*/, const AttentionOperands& /*operands*/) {
    return {};
  }
  // True if the calls of a plan give each row of dq, dk and dv at most one contribution, rounded by the kernel: then
  // called_gradients() gives them as they are. It follows from the tiles, and from sizes and dtype of the operands,
  // alone, so that ranks can tell it of each other's plans. A plan without tiles has no contribution.
  [[nodiscard]] virtual bool contributes_once(const TilePlan& /*plan*/, const AttentionOperands& /*like*/) const {
    return false;
  }
  // Of a plan that contributes_once().
  virtual CalledGradients called_gradients(const TilePlan& /*plan*/, const AttentionOperands& /*operands*/,
                                           const AttentionBackwardOperands& /*backward_operands*/) {
    return {};
  }
  // In how many groups of heads gradients_of_heads() computes a plan without being much slower; 1: it cannot.
  [[nodiscard]] virtual std::int64_t head_groups(const TilePlan& /*plan*/, const AttentionOperands& /*like*/) const {
    return 1;
  }
  // Of some heads of a plan that contributes_once(): operands and results are packed tensors narrowed to these heads.
  // Writes all rows of the results.
  virtual void gradients_of_heads(const TilePlan& /*plan*/, const AttentionOperands& /*operands*/,
                                  const AttentionBackwardOperands& /*backward_operands*/,
                                  const WholeGradients& /*results*/) {}
  struct Pipeline {
    std::int64_t q_rows = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    bool replayed = false;  // as AttentionProblem's
  };
  // In how many groups of heads this can be computed, one after the other, without being much slower. Divides heads and
  // kv_heads; the same on every rank.
  [[nodiscard]] virtual std::int64_t pipeline_groups(const Pipeline& /*of*/) const { return 1; }
  // The group cut into what this backend computes best, one call each: the same pairs of rows and keys. Parts may have
  // the same query rows.
  [[nodiscard]] virtual std::vector<TileGroup> parts(const TileGroup& group,
                                                     const AttentionOperands& /*operands*/) const {
    return {group};
  }
};

// Returns the backend's fast(), or an interface that offers nothing if that is null.
FastBackend& fast_of(AttentionBackend& backend);

}  // namespace cp_pool
