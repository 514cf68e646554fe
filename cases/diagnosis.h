// Why a case failed, as far as the worker could tell: a worker's event (docs/protocol.md) and a part of case_finished
// (docs/events.md). docs/diagnosis.md lists the ids and says how causes are found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cases/enum_names.h"
#include "cases/fields.h"

namespace cp_pool {

enum class Certainty {
  certain,  // only one explanation fits every tensor that failed, on the case and on another seed
  likely,   // several explanations fit, and all are named; or one fits, but another seed could not be tried
  unknown,  // no explanation fits
};
template <>
inline constexpr auto kNames<Certainty> = kSpelledNames<Certainty::unknown>;

// Queries and keys that should have met and did not, or that met and should not have. Positions are in the padded
// sequence, both ends included. Padding rows that have no position of their own come after the valid ones.
struct PairRectangle {
  std::string text;  // "queries 64..127 (rank 1) did not see keys 32..47 (chunk 1, rank 0)"
  std::int64_t q_sequence = 0;
  std::int64_t q_first = 0;
  std::int64_t q_last = 0;
  std::int64_t kv_sequence = 0;
  std::int64_t kv_first = 0;
  std::int64_t kv_last = 0;
  std::int64_t times = 0;  // how often each of the queries saw each of the keys

  static constexpr auto fields() {
    return FieldList{optional<&PairRectangle::text, &PairRectangle::q_sequence, &PairRectangle::q_first,
                              &PairRectangle::q_last, &PairRectangle::kv_sequence, &PairRectangle::kv_first,
                              &PairRectangle::kv_last, &PairRectangle::times>()};
  }
};

// The wrong pairs of queries and keys. The lists hold the largest rectangles; missing_pairs and excess_pairs count all
// pairs.
struct WrongPairs {
  std::int64_t missing_pairs = 0;
  std::int64_t excess_pairs = 0;
  std::vector<PairRectangle> missing;
  std::vector<PairRectangle> excess;

  static constexpr auto fields() {
    return FieldList{
        optional<&WrongPairs::missing_pairs, &WrongPairs::excess_pairs, &WrongPairs::missing, &WrongPairs::excess>()};
  }
};

// The observed mask: queries downwards, keys to the right, sequence by sequence, padding included. Each character is a
// cell of q_per_cell queries and kv_per_cell keys:
//   ' ' no pair should meet, and none does                  '.' all pairs that should meet do, and no others
//   '-' some pairs that should meet do not                  '+' some pairs meet that should not, or more than once
//   '!' both '-' and '+'                                    '?' a weight is not a whole number, or is unknown
struct MaskPicture {
  std::int64_t q_per_cell = 1;
  std::int64_t kv_per_cell = 1;
  std::vector<std::string> rows = {};         // of equal length
  std::vector<std::int64_t> q_borders = {};   // indexes of the cells at which another sequence begins, without 0
  std::vector<std::int64_t> kv_borders = {};  // as q_borders, for columns
  std::vector<int> q_ranks = {};   // for each row of cells the rank that owns its first query; -1 if none does
  std::vector<int> kv_ranks = {};  // for each column of cells, in the same way
  // For each row and each column of cells all ranks that own its queries or keys, in ascending order. Empty if each has
  // one owner at most, which q_ranks and kv_ranks name.
  std::vector<std::vector<int>> q_owners = {};
  std::vector<std::vector<int>> kv_owners = {};

  static constexpr auto fields() {
    return FieldList{
        optional<&MaskPicture::q_per_cell, &MaskPicture::kv_per_cell, &MaskPicture::rows, &MaskPicture::q_borders,
                 &MaskPicture::kv_borders, &MaskPicture::q_ranks, &MaskPicture::kv_ranks>(),
        sparse<&MaskPicture::q_owners, &MaskPicture::kv_owners>()};
  }
};

// Returns for each row (or column) of cells of a picture all ranks that own something of it, in ascending order, from
// its q_ranks and q_owners (or kv_ranks and kv_owners).
inline std::vector<std::vector<int>> owners_of(const std::vector<int>& ranks,
                                               const std::vector<std::vector<int>>& owners) {
  if (!owners.empty()) return owners;
  std::vector<std::vector<int>> out(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] >= 0) out[i] = {ranks[i]};
  }
  return out;
}

// Where a tensor of a rank is wrong: the largest error / bound of each cell of rows (in packed order) and of each head.
// At 1 the error equals the bound. A wrong row without a bound (padding, NaN) counts as kOffTheScale.
struct ErrorStrip {
  static constexpr double kOffTheScale = 1e9;

  std::string tensor;
  int rank = 0;
  std::int64_t rows_per_cell = 1;
  std::vector<double> by_row;         // one value per cell of rows_per_cell rows
  std::vector<std::int64_t> borders;  // indexes of the cells at which another chunk or sequence begins, without 0
  std::vector<double> by_head;

  static constexpr auto fields() {
    return FieldList{optional<&ErrorStrip::tensor, &ErrorStrip::rank, &ErrorStrip::rows_per_cell, &ErrorStrip::by_row,
                              &ErrorStrip::borders, &ErrorStrip::by_head>()};
  }
};

struct Diagnosis {
  static constexpr std::string_view kUnknown = "unknown";

  Certainty certainty = Certainty::unknown;
  std::string id{kUnknown};           // one of the ids in docs/diagnosis.md
  std::string cause;                  // one sentence: the mistake, or what the wrong values have in common
  std::vector<std::string> explains;  // failed tensors that the cause explains, each once
  std::vector<std::string> others;    // if likely: the other ids that fit
  std::vector<std::string> evidence;  // sentences
  std::optional<WrongPairs> pairs;    // set if the keys that each query sees could be observed, and some were wrong
  std::optional<MaskPicture> picture;
  std::vector<ErrorStrip> strips;  // one for each tensor of a rank that failed
  double ms = 0;                   // milliseconds that the diagnosis took

  static constexpr auto fields() {
    return FieldList{required<&Diagnosis::certainty, &Diagnosis::id, &Diagnosis::cause>(),
                     optional<&Diagnosis::explains, &Diagnosis::others, &Diagnosis::evidence>(),
                     sparse<&Diagnosis::pairs, &Diagnosis::picture>(), optional<&Diagnosis::strips, &Diagnosis::ms>()};
  }
};

// What a diagnosis has found in one case of a run. It is tried first on other failures, since the cases of a run mostly
// fail for the same reason.
struct KnownMistake {
  Certainty certainty = Certainty::certain;
  std::vector<std::string> ids;  // the diagnosis's id, then its others
  std::string case_id;           // the case that was diagnosed

  static constexpr auto fields() {
    return FieldList{required<&KnownMistake::certainty, &KnownMistake::ids>(), field("case", &KnownMistake::case_id)};
  }
};

}  // namespace cp_pool
