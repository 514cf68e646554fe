// The mask of a case, with parameters for the ways in which implementations get it wrong.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/dense_problem.h"
#include "cp_core/diagnosis/hypothesis.h"

namespace cp_pool::diagnosis {

// The sequence and position of every row as the mask sees them: int64, one per row.
struct Places {
  at::Tensor q_sequence;
  at::Tensor q_position;
  at::Tensor kv_sequence;
  at::Tensor kv_position;
};

struct MaskRule {
  // The mask of the definition. Keeps a reference to the problem.
  explicit MaskRule(const DenseProblem& of);

  enum class Diagonal { bottom_right, top_left, reversed };

  const DenseProblem& dense;
  bool causal = false;
  std::int64_t causal_edge = 0;  // a causal query sees keys up to this many positions after its diagonal
  std::array<std::optional<std::int64_t>, 2> window;  // the width of each side in keys; nullopt: no limit
  std::int64_t chunk = 0;
  std::vector<MaskSlice> slices;       // of a mask of slices; empty: there is none
  std::int64_t slice_query_shift = 0;  // by how many positions the queries of slices end late, and their keys
  std::int64_t slice_key_shift = 0;
  std::vector<SliceType> opposite_corners;  // the types whose diagonals begin or end in the opposite corners
  // By how many positions a chunk begins late for queries, begins late for keys, and ends late for keys.
  std::int64_t chunk_query_shift = 0;
  std::int64_t chunk_first_shift = 0;
  std::int64_t chunk_end_shift = 0;
  Diagonal diagonal = Diagonal::bottom_right;
  std::int64_t shift = 0;         // by how many keys the diagonal is moved to the right
  bool chunk_of_diagonal = true;  // a query's chunk is that of its diagonal; else that of its position
  bool borders = true;            // queries see keys of their own sequence only
  bool padding_keys = false;
  bool padding_queries = false;
  // Where the mask takes rows to be; `window_places` overrides this for the window.
  Places places;
  std::optional<Places> window_places;
  // bool, for q and kv rows: which rows are not padding, if places and lengths do not decide it.
  std::optional<std::pair<at::Tensor, at::Tensor>> valid_rows;
  at::Tensor keys_that_count;  // bool, for kv rows: each token counts once, however many ranks hold it
  // Lengths of the sequences.
  std::vector<std::int64_t> valid_q;
  std::vector<std::int64_t> valid_kv;
  std::vector<std::int64_t> padded_q;
  std::vector<std::int64_t> padded_kv;

  // fp64 [q rows, kv rows]: 1 where a query sees a key, else 0.
  [[nodiscard]] at::Tensor times() const;
  // int64 [q rows]: the position of the key on each query's diagonal.
  [[nodiscard]] at::Tensor diagonal_of_queries() const { return diagonal_of(places).first.squeeze(1); }

 private:
  // Returns i' of the queries and j of the keys (docs/definitions.md): [q rows, 1] and [1, kv rows].
  [[nodiscard]] std::pair<at::Tensor, at::Tensor> diagonal_of(const Places& of) const;
  [[nodiscard]] at::Tensor valid_pairs() const;
  [[nodiscard]] at::Tensor shown_by_slices() const;
};

}  // namespace cp_pool::diagnosis
