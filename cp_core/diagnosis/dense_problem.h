// The problem of all ranks in one place, dense and in fp64: the rows of all ranks are concatenated, with the values
// that the ranks' shards hold, padding included.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/observation.h"
#include "cp_core/verify/canonical.h"
#include "cp_core/verify/ownership.h"

namespace cp_pool::diagnosis {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The rows of q, or of k and v: rank after rank, each rank's rows in packed order.
struct Side {
  Side() = default;
  Side(const verify::RowsByRank& by_rank, bool poisoned_padding);

  [[nodiscard]] std::int64_t count() const { return rank.numel(); }
  // Returns only the rows with these indices. `first` stays empty.
  [[nodiscard]] Side selected(const at::Tensor& rows) const;

  // int64, one element per row.
  at::Tensor rank;
  at::Tensor sequence;
  at::Tensor position;   // in the sequence; -1 = padding that has no position
  at::Tensor canonical;  // index in canonical tensors (verify::LocalRow); -1 = padding
  at::Tensor row;        // index in this Side
  at::Tensor original;   // the first row that holds the same token; another row than this if the token is replicated
  at::Tensor place;      // index among the rows that its rank has of the sequence
  at::Tensor half;       // 0 or 1: whether the row is in the first or the second half of those that are not replicated
  at::Tensor place_in_half;
  at::Tensor valid;                 // bool: is not padding
  at::Tensor poisoned;              // bool: the inputs hold NaN there
  at::Tensor copy;                  // bool: an earlier rank holds the same token
  std::vector<std::int64_t> first;  // the first row of each rank, then the number of rows; empty after selected()
};

struct DenseProblem {
  // Keeps a reference to the observation.
  explicit DenseProblem(const Observation& of);

  // Returns the problem with only these queries, for computations in which queries do not depend on each other.
  [[nodiscard]] DenseProblem with_queries(const at::Tensor& rows) const;

  [[nodiscard]] const Case& c() const { return observation->c; }
  [[nodiscard]] const SequenceLengths& lengths() const { return observation->lengths; }
  [[nodiscard]] std::int64_t group() const { return c().heads / c().kv_heads; }
  // The rows that this result has; null if they are neither queries nor keys.
  [[nodiscard]] const Side* side_of(at::Tensor verify::Results::* member) const {
    return is_of_queries(member) ? &q_rows : is_of_keys(member) ? &kv_rows : nullptr;
  }
  // q . k (of_v: dout . v) of all pairs, [heads, q rows, kv rows], with the heads of the definition. Computed on the
  // first call.
  const at::Tensor& raw_products(bool of_v) const;
  // The element of `bias` that each pair reads: int64 [q rows, kv rows], an index into the flattened batch, rows and
  // columns.
  [[nodiscard]] at::Tensor bias_index() const {
    return bias_index_at(q_rows.sequence, q_rows.position, kv_rows.position);
  }
  // The same, if the queries belonged to these sequences and the rows were at these positions. kv_positions may also be
  // [q rows, kv rows].
  [[nodiscard]] at::Tensor bias_index_at(const at::Tensor& sequences, const at::Tensor& q_positions,
                                         const at::Tensor& kv_positions) const;

  const Observation* observation;
  verify::CanonicalProblem problem;
  verify::Ownership owners;  // of all rows, even in a problem with only some queries
  int ranks = 0;
  Side q_rows;
  Side kv_rows;
  // fp64; NaN in padding is replaced by 0.
  at::Tensor q;     // [q rows, heads, head_dim_qk]
  at::Tensor k;     // [kv rows, kv_heads, head_dim_qk]
  at::Tensor v;     // [kv rows, kv_heads, head_dim_v]
  at::Tensor dout;  // [q rows, heads, head_dim_v]; undefined unless training
  at::Tensor bias;  // [batch or 1, heads or 1, padded rows or 1, padded columns]; undefined if there is none
  at::Tensor sink;  // [heads]; undefined if there is none

 private:
  mutable std::array<at::Tensor, 2> raw_products_;
};

// Turns [rows, kv_heads, dim] into [heads, rows, dim], where query head h gets kv head kv_of[h].
at::Tensor by_query_head(const at::Tensor& keys, const std::vector<std::int64_t>& kv_of);
// The kv head of each query head: docs/definitions.md.
std::vector<std::int64_t> defined_kv_heads(const Case& c);
at::Tensor index_tensor(const std::vector<std::int64_t>& values);
// At most this many of the rows, evenly spread.
at::Tensor evenly(const at::Tensor& rows, std::int64_t most);

}  // namespace cp_pool::diagnosis
