#include "cp_core/diagnosis/wrong_pairs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "cp_core/diagnosis/pair_blocks.h"
#include "cp_core/diagnosis/pair_text.h"

namespace cp_pool::diagnosis {
namespace {

constexpr std::size_t kMostRectangles = 8;
// A smaller weight counts as 0 (row_reading.cpp rounds times this small to 0 in rows of whole numbers).
constexpr double kNoWeight = 1e-4;

class PairReader {
 public:
  explicit PairReader(const SightPairs& pairs)
      : pairs_(pairs),
        times_(pairs.times.const_data_ptr<double>()),
        expected_(pairs.expected.const_data_ptr<double>()),
        keys_(pairs.grid.kv.size()) {}

  [[nodiscard]] bool expected(std::int64_t i, std::int64_t j) const { return expected_[i * keys_ + j] != 0; }
  [[nodiscard]] double times(std::int64_t i, std::int64_t j) const { return times_[i * keys_ + j]; }
  [[nodiscard]] bool weighs(std::int64_t i) const {
    return pairs_.rows[static_cast<std::size_t>(i)].kind == RowReading::Kind::weights;
  }

  [[nodiscard]] bool missing(std::int64_t i, std::int64_t j) const {
    return expected(i, j) && std::abs(times(i, j)) <= kNoWeight;
  }
  // Returns how often a pair was seen that should not be, or more than once; else 0. 1 where weights are not whole
  // numbers.
  [[nodiscard]] std::int32_t excess(std::int64_t i, std::int64_t j) const {
    const double seen = times(i, j);
    if (std::isnan(seen)) return 0;
    if (weighs(i)) return !expected(i, j) && std::abs(seen) > kNoWeight ? 1 : 0;
    return seen > (expected(i, j) ? 1 : 0) ? static_cast<std::int32_t>(seen) : 0;
  }

  template <typename Label>
  [[nodiscard]] PairLabels label(Label&& of) const {
    PairLabels labels(pairs_.grid.q.size(), keys_);
    mark_borders(labels, pairs_.grid);
    for (std::int64_t i = 0; i < labels.q; ++i) {
      for (std::int64_t j = 0; j < keys_; ++j) labels.at(i, j) = of(i, j);
    }
    return labels;
  }

  [[nodiscard]] std::string queries(const PairBlock& block) const {
    return pairs_.prefix + queries_text(pairs_.grid.q, {block.q_first, block.q_last});
  }
  [[nodiscard]] std::string keys(const PairBlock& block) const {
    return keys_text(pairs_.grid.kv, {block.kv_first, block.kv_last}, pairs_.grid.q.row(block.q_first).sequence);
  }

 private:
  const SightPairs& pairs_;
  const double* times_;
  const double* expected_;
  std::int64_t keys_;
};

std::int64_t count_labels(const PairLabels& labels) {
  return static_cast<std::int64_t>(labels.labels.size()) - std::ranges::count(labels.labels, 0);
}

std::string excess_text(const PairReader& reader, const PairBlock& block, bool has_lse) {
  std::string saw = fmt::format("{} saw {}", reader.queries(block), reader.keys(block));
  if (block.label == 1) return saw;
  return fmt::format("{} {}{}", saw, times_text(block.label),
                     has_lse ? "" : ", where a key of the smallest weight counts as seen once");
}

}  // namespace

WrongPairs find_wrong_pairs(const SightPairs& pairs) {
  const PairReader reader(pairs);
  const PairLabels missing = reader.label([&](std::int64_t i, std::int64_t j) { return reader.missing(i, j) ? 1 : 0; });
  const PairLabels excess = reader.label([&](std::int64_t i, std::int64_t j) { return reader.excess(i, j); });
  WrongPairs found;
  found.missing_pairs = count_labels(missing);
  found.excess_pairs = count_labels(excess);
  for (const PairBlock& block : largest_blocks(missing, kMostRectangles)) {
    PairRectangle rectangle = rectangle_of(pairs.grid, block);
    rectangle.text = fmt::format("{} did not see {}", reader.queries(block), reader.keys(block));
    found.missing.push_back(std::move(rectangle));
  }
  for (const PairBlock& block : largest_blocks(excess, kMostRectangles)) {
    PairRectangle rectangle = rectangle_of(pairs.grid, block);
    rectangle.text = excess_text(reader, block, pairs.has_lse);
    rectangle.times = block.label;
    found.excess.push_back(std::move(rectangle));
  }
  return found;
}

std::vector<std::string> notes_on_weights(const SightPairs& pairs) {
  struct Oddity {
    bool (*shows)(const RowReading&);
    const char* says;
  };
  constexpr std::array kOddities{
      Oddity{[](const RowReading& row) { return row.kind == RowReading::Kind::weights || row.negative; },
             "the weights of keys are not whole numbers: parts were merged with wrong weights, or V was read in the "
             "wrong place"},
      Oddity{[](const RowReading& row) { return row.lse_is_wrong || row.only_lse_counts; },
             "the lse is not the logarithm of the number of keys that out shows"}};
  std::vector<std::string> notes;
  for (const Oddity& oddity : kOddities) {
    const auto count = std::ranges::count_if(pairs.rows, oddity.shows);
    if (count == 0) continue;
    const auto first = std::ranges::find_if(pairs.rows, oddity.shows) - pairs.rows.begin();
    notes.push_back(fmt::format("{}for {} of {} queries, the first of which is {}, {}", pairs.prefix, count,
                                pairs.rows.size(), queries_text(pairs.grid.q, {first, first}), oddity.says));
  }
  return notes;
}

}  // namespace cp_pool::diagnosis
