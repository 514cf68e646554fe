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

// The part of the interface that makes a backend faster. A function that a backend does not override offers nothing.
//   ahead        get_ready, preparations: do work in advance that the first call of a kind would take long for
//   calls        forward_calls, called_gradients: return the results of a kernel call as it rounded them, not added to
//                fp32 sums
//   head groups  head_groups, gradients_of_heads, pipeline_groups: compute by groups of heads, so that the
//                computation of one group overlaps the exchange of another
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

class AttentionBackend : public FastBackend {
 public:
  virtual void forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) = 0;
  // Adds the gradients of the group to the fp32 sums. Where the backend can, it waits for their turn only after
  // everything has been enqueued that does not need them, and writes to empty sums what it would have to add to zeros.
  virtual void backward(const TileGroup& group, const AttentionOperands& operands,
                        const AttentionBackwardOperands& backward_operands, PendingSums& pending) = 0;
  // Returns why the backend cannot compute the case on the current device; empty if it can. forward() and backward()
  // throw BackendUnsupported if they are called for such a case.
  [[nodiscard]] virtual std::string refusal(const Case& /*c*/) const { return {}; }
  // Returns a sentence, with the reason, for each pass in which another backend has computed tiles in place of this one
  // so far. Results show these sentences.
  [[nodiscard]] virtual std::vector<std::string> remarks() const { return {}; }
};

}  // namespace cp_pool
