// What computes the tiles: one group of tiles at a time, forward or backward. Backends differ by library and device;
// all obey tiling.h. Tensors are packed [tokens, heads, dim], contiguous, on one device; a CUDA backend works on the
// current stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cp_core/tiling.h"

namespace cp_pool {

// Which row of a bias [batch or 1, heads or 1, rows or 1, seqlen_kv] belongs to a query. Columns are key positions.
enum class BiasRows {
  position,  // the position in the sequence
  local,     // the row among the rows of its sequence in q; all sequences have as many
};

struct AttentionOperands {
  at::Tensor q;     // [q tokens, heads, head_dim_qk]
  at::Tensor k;     // [kv tokens, kv_heads, head_dim_qk]
  at::Tensor v;     // [kv tokens, kv_heads, head_dim_v]
  at::Tensor bias;  // undefined if none; else tiles must not be merged
  BiasRows bias_rows = BiasRows::position;
  double scale = 1.0;
};

// One group's share of the output: written at the rows of its tiles only.
struct AttentionPartial {
  at::Tensor out;        // fp32 [q tokens, heads, head_dim_v]
  at::Tensor lse;        // fp32 [heads, q tokens]
  at::Tensor max_logit;  // fp32 [heads], raised to the largest score seen; undefined if not asked for
};

// Of the whole attention, not of one group: lse with all keys (and the sink), delta = sum of dout * out.
struct AttentionBackwardOperands {
  at::Tensor dout;   // like out, dtype of q
  at::Tensor lse;    // fp32 [heads, q tokens]
  at::Tensor delta;  // fp32 [heads, q tokens]
  // Like dout: the output, or anything else whose sum with dout is delta. Undefined unless the backend needs_out().
  at::Tensor out;
};

// Gradients are added here, in fp32.
struct AttentionGradientSums {
  at::Tensor dq;
  at::Tensor dk;
  at::Tensor dv;
  at::Tensor dbias;  // shaped like bias; undefined if not wanted
  // Nothing has been added yet, and the memory holds anything. A backend meets this only if it takes_empty_sums().
  bool dq_empty = false;
  bool dkv_empty = false;  // dk and dv

  // Zeros where nothing has been added.
  void fill_dq();
  void fill_dkv();
  void fill() {
    fill_dq();
    fill_dkv();
  }

  // Makes the current stream wait until it may touch the sums; empty if it may at once. A backend calls wait_for_turn()
  // when everything that does not need the sums is enqueued.
  std::function<void()> turn{};  // NOLINT(readability-redundant-member-init): designated initializers leave it out

  void wait_for_turn() const {
    if (turn) turn();
  }
};

// All gradients 0, shaped like the operands; without dbias.
AttentionGradientSums make_gradient_sums(const AttentionOperands& operands);

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

// The rows of tiles one after the other, without gaps: row `source` there is row `target` of a packed tensor.
std::vector<RowCopy> query_rows_of(std::span<const Tile> tiles);
std::vector<RowCopy> key_rows_of(std::span<const Tile> tiles);
// How many these are, without gaps.
std::int64_t row_count(std::span<const RowCopy> rows);
// True if these are all rows [0, count), each in its place.
bool all_in_place(std::span<const RowCopy> rows, std::int64_t count);

// Of a plan that has one group at most.
std::span<const Tile> tiles_of(const TilePlan& plan);

// True if a call for each tile, or one for all of them, adds to each row of dq, dk and dv at most once: the tiles of
// one group, whose key rows are disjoint and ascending.
bool rows_are_disjoint(const TilePlan& plan);

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

enum class Pass { forward, backward };

// Something that takes long and can be done before the calls that need it: any time, any thread, beside anything but
// the capture of a graph. Throws what the calls would meet.
using Preparation = std::function<void()>;

class AttentionBackend {
 public:
  AttentionBackend() = default;
  AttentionBackend(const AttentionBackend&) = delete;
  AttentionBackend& operator=(const AttentionBackend&) = delete;
  virtual ~AttentionBackend() = default;

  virtual void forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) = 0;
  virtual void backward(const TileGroup& group, const AttentionOperands& operands,
                        const AttentionBackwardOperands& backward_operands, AttentionGradientSums& sums) = 0;
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
  // True if it works delta out for itself, from dout and out.
  [[nodiscard]] virtual bool needs_out() const { return false; }
  // True if backward() takes sums that are empty, and leaves them filled.
  [[nodiscard]] virtual bool takes_empty_sums() const { return false; }
  // What another backend computed for this one since it was made, a sentence each with the reason: results must not
  // hide it.
  [[nodiscard]] virtual std::vector<std::string> remarks() const { return {}; }
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

// The backend that runs cases of this kind on this device: on CPU always the math backend.
std::unique_ptr<AttentionBackend> make_backend(Backend backend, const at::Device& device);

}  // namespace cp_pool
