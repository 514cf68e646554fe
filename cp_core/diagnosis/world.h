// The problem of all ranks in one place, dense and in fp64: the rows of every rank behind each other, with what their
// shards hold, padding included.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/observation.h"
#include "cp_core/verify/canonical.h"
#include "cp_core/verify/ownership.h"

namespace cp_pool::diagnosis {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The rows of q, or of k and v: rank after rank, each in packed order.
struct Side {
  Side() = default;
  Side(const verify::RowsByRank& by_rank, bool poisoned_padding);

  [[nodiscard]] std::int64_t count() const { return rank.numel(); }
  // The rows of these indices alone.
  [[nodiscard]] Side selected(const at::Tensor& rows) const;

  // int64, one a row.
  at::Tensor rank;
  at::Tensor sequence;
  at::Tensor position;   // in the sequence; -1 = padding that no sequence has
  at::Tensor canonical;  // verify::LocalRow; -1 = padding
  at::Tensor row;        // its number here
  at::Tensor place;      // among the rows that its rank has of the sequence
  at::Tensor half;       // whether that is in the first or the second half of these
  at::Tensor place_in_half;
  at::Tensor valid;                 // bool: no padding
  at::Tensor poisoned;              // bool: inputs hold NaN there
  std::vector<std::int64_t> first;  // of each rank its first row, and the number of all rows; none of selected rows
};

struct World {
  // Keeps a reference to the observation.
  explicit World(const Observation& of);

  // The same with these queries alone, for what depends on one query at a time.
  [[nodiscard]] World with_queries(const at::Tensor& rows) const;

  [[nodiscard]] const Case& c() const { return observation->c; }
  [[nodiscard]] const SequenceLengths& lengths() const { return observation->lengths; }
  [[nodiscard]] std::int64_t group() const { return c().heads / c().kv_heads; }
  // q . k and dout . v of all pairs, [heads, q rows, kv rows], with the heads of the definition. Computed when first
  // asked for.
  const at::Tensor& raw_scores() const;
  const at::Tensor& raw_dp() const;
  // Of each pair the element of `bias` that it has: int64 [q rows, kv rows], over batch, rows and columns.
  [[nodiscard]] at::Tensor bias_index() const { return bias_index_at(q_rows.position, kv_rows.position); }
  // The same if rows stand at these positions.
  [[nodiscard]] at::Tensor bias_index_at(const at::Tensor& q_positions, const at::Tensor& kv_positions) const {
    return bias_index_at(q_rows.sequence, q_positions, kv_positions);
  }
  // The same in these sequences.
  [[nodiscard]] at::Tensor bias_index_at(const at::Tensor& sequences, const at::Tensor& q_positions,
                                         const at::Tensor& kv_positions) const;

  const Observation* observation;
  verify::CanonicalProblem problem;
  int ranks = 0;
  Side q_rows;
  Side kv_rows;
  // fp64, 0 where they hold NaN.
  at::Tensor q;     // [q rows, heads, head_dim_qk]
  at::Tensor k;     // [kv rows, kv_heads, head_dim_qk]
  at::Tensor v;     // [kv rows, kv_heads, head_dim_v]
  at::Tensor dout;  // [q rows, heads, head_dim_v]; undefined unless training
  at::Tensor bias;  // [batch or 1, heads or 1, padded rows or 1, padded columns]; undefined if there is none
  at::Tensor sink;  // [heads]; undefined if there is none

 private:
  World() = default;

  mutable at::Tensor raw_scores_;
  mutable at::Tensor raw_dp_;
};

// [rows, kv_heads, dim] as [heads, rows, dim]: query head h has kv head kv_of[h].
at::Tensor by_query_head(const at::Tensor& keys, const std::vector<std::int64_t>& kv_of);
// The kv head of each query head: docs/definitions.md.
std::vector<std::int64_t> defined_kv_heads(const Case& c);
at::Tensor index_tensor(const std::vector<std::int64_t>& values);

}  // namespace cp_pool::diagnosis
