// The interface of attention backends. A backend computes the forward or backward of one group of tiles (tiling.h) at a
// time; backends differ by library and device. Tensors are packed [tokens, heads, dim], contiguous and on one device. A
// CUDA backend works on the current stream.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cp_core/tiling.h"

namespace cp_pool {

// How a query finds its row of a bias [batch or 1, heads or 1, rows or 1, seqlen_kv]. Columns are key positions.
enum class BiasRows {
  position,  // by the query's position in its sequence
  local,     // by the query's row among the rows of its sequence in q; all sequences have the same number of rows
};

struct AttentionOperands {
  at::Tensor q;     // [q tokens, heads, head_dim_qk]
  at::Tensor k;     // [kv tokens, kv_heads, head_dim_qk]
  at::Tensor v;     // [kv tokens, kv_heads, head_dim_v]
  at::Tensor bias;  // undefined if there is none; with a bias, tiles must not be merged
  BiasRows bias_rows = BiasRows::position;
  double scale = 1.0;
};

// The output of one group. The backend writes only the query rows of the group's tiles.
struct AttentionPartial {
  at::Tensor out;        // fp32 [q tokens, heads, head_dim_v]
  at::Tensor lse;        // fp32 [heads, q tokens]
  at::Tensor max_logit;  // fp32 [heads], raised to the largest score seen; undefined if not asked for
};

// Operands of the backward. They belong to the whole attention and not to one group: lse is over all keys (and the
// sink), delta is the sum of dout * out over head_dim_v.
struct AttentionBackwardOperands {
  at::Tensor dout;  // [q tokens, heads, head_dim_v], dtype of q
  at::Tensor lse;   // fp32 [heads, q tokens]
  // fp32 [heads, q tokens]; undefined if FastBackend::works_out_delta() and there is no bias.
  at::Tensor delta;
  at::Tensor out;  // like dout: the output, or any tensor for which the sum of dout * out is delta
};

// Sums that a backend adds gradients to, in fp32.
struct AttentionGradientSums {
  at::Tensor dq;
  at::Tensor dk;
  at::Tensor dv;
  at::Tensor dbias;  // shaped like bias; undefined if not wanted
  // Nothing has been added yet, and the memory is uninitialised. Only backends that offer this get such sums
  // (FastBackend::takes_empty_sums).
  bool dq_empty = false;
  bool dkv_empty = false;  // dk and dv

  // Fill empty sums with zeros.
  void fill_dq();
  void fill_dkv();
  void fill() {
    fill_dq();
    fill_dkv();
  }

  // Makes the current stream wait until it may use the sums; empty if it need not wait. A backend calls wait_for_turn()
  // after it has enqueued everything that does not need the sums.
  std::function<void()> turn{};  // NOLINT(readability-redundant-member-init): designated initializers leave it out

  void wait_for_turn() const {
    if (turn) turn();
  }
};

// Returns sums that are all 0, shaped like the operands and without dbias.
AttentionGradientSums make_gradient_sums(const AttentionOperands& operands);

// Maps a buffer that has the rows of the tiles one after the other to a packed tensor: row `source` of the buffer is
// row `target` of the packed tensor.
std::vector<RowCopy> query_rows_of(std::span<const Tile> tiles);
std::vector<RowCopy> key_rows_of(std::span<const Tile> tiles);
// The number of rows in such a buffer.
std::int64_t row_count(std::span<const RowCopy> rows);
// Whether the copies are of all rows [0, count), and each row keeps its number.
bool all_in_place(std::span<const RowCopy> rows, std::int64_t count);

// The tiles of a plan, which must have at most one group.
std::span<const Tile> tiles_of(const TilePlan& plan);

// Whether the plan adds to each row of dq, dk and dv at most once, however its tiles are divided into calls. This holds
// for a single group whose key rows are disjoint and ascending.
bool rows_are_disjoint(const TilePlan& plan);

enum class Pass { forward, backward };

class FastBackend;

class AttentionBackend {
 public:
  AttentionBackend() = default;
  AttentionBackend(const AttentionBackend&) = delete;
  AttentionBackend& operator=(const AttentionBackend&) = delete;
  virtual ~AttentionBackend() = default;

  virtual void forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) = 0;
  virtual void backward(const TileGroup& group, const AttentionOperands& operands,
                        const AttentionBackwardOperands& backward_operands, AttentionGradientSums& sums) = 0;
  // Returns why the backend cannot compute the case on the current device; empty if it can. forward() and backward()
  // throw BackendUnsupported if they are called for such a case.
  [[nodiscard]] virtual std::string refusal(const Case& /*c*/) const { return {}; }
  // Returns a sentence, with the reason, for each pass in which another backend has computed tiles in place of this one
  // so far. Results show these sentences.
  [[nodiscard]] virtual std::vector<std::string> remarks() const { return {}; }
  // Returns the optional part of the interface (fast_backend.h), or null. It lives as long as the backend.
  virtual FastBackend* fast() { return nullptr; }
};

}  // namespace cp_pool
