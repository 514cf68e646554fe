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
  // Like dout: the output, or anything else whose sum with dout is delta (delta_carrier). Undefined unless the backend
  // needs_out().
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
  // The group cut into what this backend computes best, one call each: the same pairs of rows and keys. Parts may have
  // the same query rows.
  [[nodiscard]] virtual std::vector<TileGroup> parts(const TileGroup& group,
                                                     const AttentionOperands& /*operands*/) const {
    return {group};
  }
};

// dout scaled row by row such that the sum of dout * result is delta: what stands for the output where only dout and
// delta (fp32 [heads, q tokens]) have been exchanged. Of dout's dtype and shape. A row's norm is at most that of the
// output's row, so that the rounding of delta is no worse than with the rounded output.
at::Tensor delta_carrier(const at::Tensor& dout, const at::Tensor& delta);

// True if the tiles, whose query rows are disjoint and in order, have all rows [0, rows).
bool covers_queries(const std::vector<Tile>& tiles, std::int64_t rows);

// The backend that runs cases of this kind on this device: on CPU always the math backend.
std::unique_ptr<AttentionBackend> make_backend(Backend backend, const at::Device& device);

}  // namespace cp_pool
