// The interface of attention backends. A backend computes the forward or backward of one group of tiles (tiling.h) at a
// time; backends differ by library and device. Tensors are packed [tokens, heads, dim], contiguous and on one device. A
// CUDA backend works on the current stream.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cases/pass.h"
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
  double softcap = 0.0;  // caps scaled scores (docs/definitions.md); 0: does not
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
  // fp32 [heads, q tokens]; undefined if FastBackend::computes_delta() and there is no bias.
  at::Tensor delta;
  at::Tensor out;  // like dout: the output, or any tensor for which the sum of dout * out is delta
};

// Gradients in the packed layout of the operands. As results, dq, dk and dv have the dtype of q. As sums that calls add
// to, they are fp32.
struct PackedGradients {
  at::Tensor dq;
  at::Tensor dk;
  at::Tensor dv;
  // fp32, shaped like the bias; undefined if it is not wanted.
  at::Tensor dbias{};  // NOLINT(readability-redundant-member-init): designated initializers leave it out
};

// Returns fp32 sums that are all 0, shaped like the operands and without dbias.
PackedGradients make_gradient_sums(const AttentionOperands& operands);

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

class FastBackend;

class AttentionBackend {
 public:
  AttentionBackend() = default;
  AttentionBackend(const AttentionBackend&) = delete;
  AttentionBackend& operator=(const AttentionBackend&) = delete;
  virtual ~AttentionBackend() = default;

  virtual void forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) = 0;
  // Adds the gradients of the group to the fp32 sums.
  virtual void backward(const TileGroup& group, const AttentionOperands& operands,
                        const AttentionBackwardOperands& backward_operands, PackedGradients& sums) = 0;
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
