// The mask of a case, and the ways in which it is got wrong.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/world.h"

namespace cp_pool::diagnosis {

// Where rows stand in the sequences, as the mask takes it: int64, one a row.
struct Places {
  at::Tensor q_sequence;
  at::Tensor q_position;
  at::Tensor kv_sequence;
  at::Tensor kv_position;
};

struct MaskRule {
  // That of the definition.
  explicit MaskRule(const World& world);

  enum class Diagonal { bottom_right, top_left, reversed };

  bool causal = false;
  std::int64_t causal_edge = 0;  // a causal query sees the keys up to so many after its diagonal
  // Whether the sides of the window count, and where they are; a side of the case that is -1 does not.
  std::array<bool, 2> limited{false, false};
  std::array<std::int64_t, 2> window{0, 0};
  std::int64_t chunk = 0;
  // By so much a chunk begins later for queries, for its first key and for the key behind its last.
  std::int64_t chunk_query_shift = 0;
  std::int64_t chunk_first_shift = 0;
  std::int64_t chunk_end_shift = 0;
  Diagonal diagonal = Diagonal::bottom_right;
  std::int64_t shift = 0;         // the diagonal lies so many keys further right
  bool chunk_of_diagonal = true;  // a query's chunk goes by its diagonal, not by its position
  bool borders = true;
  bool padding_keys = false;
  bool padding_queries = false;
  // Where rows are taken to be; by the window, and by causal, if they go by other places. Lengths of the sequences.
  Places places;
  std::optional<Places> window_places;
  std::optional<Places> causal_places;
  // Which rows are no padding, bool, if that does not go by places and lengths.
  std::optional<std::pair<at::Tensor, at::Tensor>> valid_rows;
  std::vector<std::int64_t> valid_q;
  std::vector<std::int64_t> valid_kv;
  std::vector<std::int64_t> padded_q;
  std::vector<std::int64_t> padded_kv;

  // fp64 [q rows, kv rows]: 1 where a query sees a key, else 0.
  [[nodiscard]] at::Tensor times() const;

 private:
  // i' of the queries and j of the keys: [q rows, 1] and [1, kv rows].
  [[nodiscard]] std::pair<at::Tensor, at::Tensor> diagonal_of(const Places& of) const;
  [[nodiscard]] at::Tensor valid_pairs() const;
};

}  // namespace cp_pool::diagnosis
