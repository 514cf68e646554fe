// A diagnosis with pictures, for tests of the code that draws them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "cases/diagnosis.h"

namespace cp_pool::test {

// Returns the diagnosis of a causal case with a window of 24 keys over 2 ranks and 2 sequences of 64: each query sees a
// key too few, and rank 1 counts the keys at the edge of the window twice.
inline Diagnosis window_diagnosis() {
  constexpr int kCells = 32;  // cells of 4 x 4
  constexpr int kSequence = 16;
  constexpr int kWindow = 6;
  Diagnosis diagnosis;
  diagnosis.certainty = Certainty::certain;
  diagnosis.id = "window_off_by_one";
  diagnosis.cause = "each query sees one key too few at the left edge of the window";
  diagnosis.explains = {"out", "dq"};
  diagnosis.evidence = {"keys at the left edge of the window are missing"};
  MaskPicture& picture = diagnosis.picture.emplace();
  picture.q_per_cell = picture.kv_per_cell = 4;
  picture.q_borders = picture.kv_borders = {kSequence};
  for (int row = 0; row < kCells; ++row) {
    std::string& cells = picture.rows.emplace_back(kCells, ' ');
    const int first = row / kSequence * kSequence;
    const bool on_rank_1 = row % kSequence / 4 == 1 || row % kSequence / 4 == 2;
    for (int column = std::max(first, row - kWindow); column <= row; ++column) {
      const bool edge = column == row - kWindow;
      cells[static_cast<std::size_t>(column)] = !edge ? '.' : on_rank_1 && row % 4 == 3 ? '!' : '-';
    }
    if (on_rank_1 && row - kWindow > first) cells[static_cast<std::size_t>(row - kWindow - 1)] = '+';
    const int chunk = row % kSequence / 4;
    picture.q_ranks.push_back(chunk == 0 || chunk == 3 ? 0 : 1);
  }
  picture.kv_ranks = picture.q_ranks;
  for (const char* tensor : {"out", "dq"}) {
    for (int rank = 0; rank < 2; ++rank) {
      ErrorStrip& strip = diagnosis.strips.emplace_back();
      strip.tensor = tensor;
      strip.rank = rank;
      strip.rows_per_cell = 2;
      strip.borders = {8, 16, 24};
      for (int cell = 0; cell < kCells; ++cell) {
        const bool wrong = rank == 1 || cell % kSequence >= 8;
        strip.by_row.push_back(wrong ? 3.0 + 40.0 * (cell % 5) * (rank + 1) : 0.05 + 0.1 * (cell % 7));
      }
      strip.by_head = {12.0 * (rank + 1), 0.4, 25, 0.7};
    }
  }
  diagnosis.ms = 210;
  return diagnosis;
}

}  // namespace cp_pool::test
