#include "cp_core/diagnosis/wrong_pairs.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

#include "cp_core/diagnosis/pair_blocks.h"
#include "cp_core/diagnosis/pair_summary.h"
#include "cp_core/diagnosis/pair_text.h"

namespace cp_pool::diagnosis {
namespace {

constexpr std::size_t kMostRectangles = 8;
constexpr std::size_t kMostWeights = 4;
// Of an excess pair whose query has weights that are no whole numbers.
constexpr std::int32_t kOfSomeWeight = std::numeric_limits<std::int32_t>::max();
// Less is no weight at all (row_reading.cpp rounds so small times to 0 in rows of whole numbers).
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
  // A label for pairs that met though they should not, or more than once. 0: it is none.
  [[nodiscard]] std::int32_t excess(std::int64_t i, std::int64_t j) const {
    const double seen = times(i, j);
    if (std::isnan(seen)) return 0;
    if (weighs(i)) return !expected(i, j) && std::abs(seen) > kNoWeight ? kOfSomeWeight : 0;
    return seen > (expected(i, j) ? 1 : 0) ? static_cast<std::int32_t>(seen) : 0;
  }
  // A label for keys that are seen as they should be, with another weight: hundredths. 0: it is none.
  [[nodiscard]] std::int32_t weight(std::int64_t i, std::int64_t j) const {
    constexpr double kHundred = 100;
    constexpr double kMost = 1e6;
    const double seen = times(i, j);
    if (!weighs(i) || !expected(i, j) || std::isnan(seen) || std::abs(seen) <= kNoWeight) return 0;
    const auto hundredths = static_cast<std::int32_t>(std::lround(std::clamp(seen, -kMost, kMost) * kHundred));
    return hundredths == 0 ? 1 : hundredths;
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
  const std::string saw = fmt::format("{} saw {}", reader.queries(block), reader.keys(block));
  if (block.label == 1 || block.label == kOfSomeWeight) return saw;
  return fmt::format("{} {}{}", saw, times_text(block.label), has_lse ? "" : ", the keys that they saw least counting once");
}

// Weights that are no whole numbers.
void add_weights(const SightPairs& pairs, const PairReader& reader, std::vector<std::string>& notes) {
  const auto rows = std::ranges::count(pairs.rows, RowReading::Kind::weights, &RowReading::kind);
  if (rows == 0) return;
  notes.push_back(
      fmt::format("{}what {} of {} queries gave to keys are no whole numbers, which no set of keys explains: parts were "
                  "merged with wrong weights, or other values than those of the keys were read",
                  pairs.prefix, rows, pairs.rows.size()));
  const PairLabels labels = reader.label([&](std::int64_t i, std::int64_t j) { return reader.weight(i, j); });
  for (const PairBlock& block : largest_blocks(labels, kMostWeights)) {
    constexpr double kHundred = 100;
    notes.push_back(fmt::format("{} gave {} the weight {:.2f}, where 1 is due", reader.queries(block),
                                reader.keys(block), block.label / kHundred));
  }
}

// What lse says otherwise than out.
void add_lse(const SightPairs& pairs, const PairReader& reader, std::vector<std::string>& notes) {
  std::int64_t wrong = 0;
  std::int64_t more = 0;
  std::int64_t first_wrong = -1;
  std::int64_t first_more = -1;
  bool counts_missing = true;
  for (std::int64_t i = 0; i < pairs.grid.q.size(); ++i) {
    const RowReading& row = pairs.rows[static_cast<std::size_t>(i)];
    if (row.lse_is_wrong && wrong++ == 0) first_wrong = i;
    if (row.more_in_lse == 0) continue;
    if (more++ == 0) first_more = i;
    std::int64_t missing = 0;
    for (std::int64_t j = 0; j < pairs.grid.kv.size(); ++j) missing += reader.missing(i, j) ? 1 : 0;
    counts_missing = counts_missing && std::llround(row.more_in_lse) == missing;
  }
  const auto query = [&](std::int64_t i) { return queries_text(pairs.grid.q, {i, i}); };
  if (wrong > 0) {
    notes.push_back(fmt::format(
        "{}lse of {} queries is not the logarithm of the number of keys that out shows; the first is {}", pairs.prefix,
        wrong, query(first_wrong)));
  }
  if (more > 0) {
    notes.push_back(fmt::format(
        "{}lse of {} queries counts more keys than out has: {:.3g} more for {}{}", pairs.prefix, more,
        pairs.rows[static_cast<std::size_t>(first_more)].more_in_lse, query(first_more),
        counts_missing ? ". It counts the missing ones: their values alone are missing" : ""));
  }
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
    rectangle.times = block.label == kOfSomeWeight ? 1 : block.label;
    found.excess.push_back(std::move(rectangle));
  }
  return found;
}

std::vector<std::string> notes_on_pairs(const SightPairs& pairs) {
  const PairReader reader(pairs);
  std::vector<std::string> notes;
  const auto expected = [&](std::int64_t i, std::int64_t j) { return reader.expected(i, j); };
  const auto missing = [&](std::int64_t i, std::int64_t j) { return reader.missing(i, j); };
  const auto excess = [&](std::int64_t i, std::int64_t j) { return reader.excess(i, j) != 0; };
  for (const std::string& who : ranks_apart(pairs.grid, expected, missing)) {
    notes.push_back(fmt::format("{}nothing came through between {}", pairs.prefix, who));
  }
  if (const std::string where = distance_text(pairs.grid, pairs.judged.lengths, missing); !where.empty()) {
    notes.push_back(fmt::format("{}all missing pairs lie {}, i' being the diagonal of query i and j the key",
                                pairs.prefix, where));
  }
  if (const std::string where = distance_text(pairs.grid, pairs.judged.lengths, excess); !where.empty()) {
    notes.push_back(fmt::format("{}all excess pairs lie {}, i' being the diagonal of query i and j the key",
                                pairs.prefix, where));
  }
  add_weights(pairs, reader, notes);
  add_lse(pairs, reader, notes);
  const auto unknown = std::ranges::count(pairs.rows, RowReading::Kind::unknown, &RowReading::kind);
  if (unknown > 0) {
    const auto first = std::ranges::find(pairs.rows, RowReading::Kind::unknown, &RowReading::kind) - pairs.rows.begin();
    notes.push_back(fmt::format("{}what {} of {} queries saw is not known, since out is not finite, or contradicts lse; "
                                "the first is {}",
                                pairs.prefix, unknown, pairs.rows.size(), queries_text(pairs.grid.q, {first, first})));
  }
  return notes;
}

}  // namespace cp_pool::diagnosis
