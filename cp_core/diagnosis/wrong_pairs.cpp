#include "cp_core/diagnosis/wrong_pairs.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "cp_core/diagnosis/pair_blocks.h"
#include "cp_core/diagnosis/pair_summary.h"
#include "cp_core/diagnosis/pair_text.h"

namespace cp_pool::diagnosis {
namespace {

constexpr std::size_t kMostRectangles = 8;
constexpr std::size_t kMostWeights = 4;
// The label of an excess pair whose query has weights that are not whole numbers is this plus the weight in hundredths.
constexpr std::int32_t kOfSomeWeight = 1 << 24;
// A smaller weight counts as 0 (row_reading.cpp rounds times this small to 0 in rows of whole numbers).
constexpr double kNoWeight = 1e-4;
constexpr double kHundred = 100;

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
  // Returns a label for a pair that was seen though it should not be, or more than once; else 0.
  [[nodiscard]] std::int32_t excess(std::int64_t i, std::int64_t j) const {
    const double seen = times(i, j);
    if (std::isnan(seen)) return 0;
    if (weighs(i)) return !expected(i, j) && std::abs(seen) > kNoWeight ? kOfSomeWeight + hundredths_of(seen) : 0;
    return seen > (expected(i, j) ? 1 : 0) ? static_cast<std::int32_t>(seen) : 0;
  }
  // Returns the weight in hundredths for a pair that is rightly seen but has a wrong weight; else 0.
  [[nodiscard]] std::int32_t weight(std::int64_t i, std::int64_t j) const {
    constexpr double kAsDue = 0.02;
    const double seen = times(i, j);
    if (!weighs(i) || !expected(i, j) || std::isnan(seen) || std::abs(seen) <= kNoWeight) return 0;
    if (std::abs(seen - 1) <= kAsDue) return 0;
    return hundredths_of(seen);
  }
  [[nodiscard]] std::int64_t missing_of(std::int64_t i) const {
    std::int64_t count = 0;
    for (std::int64_t j = 0; j < keys_; ++j) count += missing(i, j) ? 1 : 0;
    return count;
  }
  // Returns the largest relative distance of a weight from the nearest whole number, over queries whose weights are not
  // whole numbers.
  [[nodiscard]] double farthest_from_number() const {
    double farthest = 0;
    for (std::int64_t i = 0; i < pairs_.grid.q.size(); ++i) {
      for (std::int64_t j = 0; j < keys_ && weighs(i); ++j) {
        const double number = std::round(times(i, j));
        farthest = std::max(farthest, std::abs(times(i, j) - number) / std::max(number, kNoWeight));
      }
    }
    return farthest;
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
  static std::int32_t hundredths_of(double weight) {
    constexpr double kMost = 1e4;
    return std::max(static_cast<std::int32_t>(std::lround(std::min(weight, kMost) * kHundred)), 1);
  }

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
  if (block.label > kOfSomeWeight)
    return fmt::format("{} with the weight {:.2f}", saw, (block.label - kOfSomeWeight) / kHundred);
  return fmt::format("{} {}{}", saw, times_text(block.label),
                     has_lse ? "" : ", where a key of the smallest weight counts as seen once");
}

// How many queries pass a test, and the first of them.
struct FoundRows {
  std::int64_t count = 0;
  std::int64_t first = -1;
};

template <typename Test>
FoundRows find_rows(const std::vector<RowReading>& rows, Test&& test) {
  FoundRows found;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (test(rows[i]) && found.count++ == 0) found.first = static_cast<std::int64_t>(i);
  }
  return found;
}

// Writes the notes on what is wrong with weights and lse.
class WeightNotes {
 public:
  explicit WeightNotes(const SightPairs& pairs) : pairs_(pairs), reader_(pairs) {}

  std::vector<std::string> take() {
    add_weights();
    add_sums();
    add_more_in_lse();
    add_wrong_lse();
    add_unknown();
    return std::move(notes_);
  }

 private:
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    notes_.push_back(pairs_.prefix + fmt::format(format, std::forward<Arguments>(arguments)...));
  }
  [[nodiscard]] std::string query(const FoundRows& rows) const {
    return queries_text(pairs_.grid.q, {rows.first, rows.first});
  }
  [[nodiscard]] const RowReading& first(const FoundRows& rows) const {
    return pairs_.rows[static_cast<std::size_t>(rows.first)];
  }

  void add_weights() {
    const FoundRows rows =
        find_rows(pairs_.rows, [](const RowReading& row) { return row.kind == RowReading::Kind::weights; });
    if (rows.count == 0) return;
    const double distance = reader_.farthest_from_number();
    if (distance < kOfRounding) {
      add("{} of {} queries gave keys weights that deviate from whole numbers by up to {:.2g} %. The deviation is "
          "larger than the rounding error of the dtype, and as large as that of a shorter dtype",
          rows.count, pairs_.rows.size(), distance * kHundred);
      return;
    }
    add("{} of {} queries gave keys weights that are not whole numbers. No set of seen keys explains such weights: "
        "parts were merged with wrong weights, or V was read in the wrong place",
        rows.count, pairs_.rows.size());
    const PairLabels labels = reader_.label([&](std::int64_t i, std::int64_t j) { return reader_.weight(i, j); });
    for (const PairBlock& block : largest_blocks(labels, kMostWeights)) {
      notes_.push_back(fmt::format("{} gave {} the weight {:.2f} instead of 1", reader_.queries(block),
                                   reader_.keys(block), block.label / kHundred));
    }
  }

  void add_sums() {
    const FoundRows rows = find_rows(pairs_.rows, [](const RowReading& row) { return row.sum != 1; });
    if (rows.count == 0) return;
    add("the output of {} queries is not a weighted mean of V: the weights sum to {:.4g} instead of 1 for {}",
        rows.count, first(rows).sum, query(rows));
  }

  void add_more_in_lse() {
    const FoundRows rows = find_rows(pairs_.rows, [](const RowReading& row) { return row.more_in_lse > 0; });
    if (rows.count == 0) return;
    bool counts_missing = true;
    for (std::int64_t i = 0; i < pairs_.grid.q.size(); ++i) {
      const double more = pairs_.rows[static_cast<std::size_t>(i)].more_in_lse;
      counts_missing = counts_missing && (more == 0 || std::llround(more) == reader_.missing_of(i));
    }
    add("the lse of {} queries counts more keys than the output shows: {:.3g} more for {}. {}", rows.count,
        first(rows).more_in_lse, query(rows),
        counts_missing ? "The lse counts the missing keys too: only their values are missing"
                       : "Something without a value joined the softmax");
  }

  void add_wrong_lse() {
    const FoundRows wrong = find_rows(pairs_.rows, [](const RowReading& row) { return row.lse_is_wrong; });
    if (wrong.count > 0) {
      add("the lse of {} queries is not the logarithm of the number of keys that the output shows; the first such "
          "query is {}",
          wrong.count, query(wrong));
    }
    double largest = 0;
    const FoundRows off = find_rows(pairs_.rows, [&](const RowReading& row) {
      largest = std::max(largest, row.lse_error);
      return row.lse_error > 0;
    });
    if (off.count > 0) {
      add("the lse of {} queries counts the right keys, but has errors of up to {:.2g}", off.count, largest);
    }
    const FoundRows alone =
        find_rows(pairs_.rows, [](const RowReading& row) { return row.only_lse_counts && !row.lse_is_wrong; });
    if (alone.count > 0) {
      add("only the lse of {} queries says that each of their keys was seen several times. An lse that is too large by "
          "the same amount would look the same",
          alone.count);
    }
  }

  void add_unknown() {
    const FoundRows of_k = find_rows(pairs_.rows, [](const RowReading& row) { return row.keys_of_minus_one > 0; });
    if (of_k.count > 0) {
      add("the output of {} queries holds values of K instead of V: those of {:g} keys for {}", of_k.count,
          first(of_k).keys_of_minus_one, query(of_k));
    }
    const FoundRows foreign =
        find_rows(pairs_.rows, [](const RowReading& row) { return row.negative && row.keys_of_minus_one == 0; });
    if (foreign.count > 0) {
      add("the output of {} queries is not a mean of values of V, which were all 0 or 1; the first such query is {}",
          foreign.count, query(foreign));
    }
    const FoundRows rows = find_rows(
        pairs_.rows, [](const RowReading& row) { return row.kind == RowReading::Kind::unknown && !row.negative; });
    if (rows.count == 0) return;
    add("the keys that {} of {} queries saw are unknown, because the output is not finite or contradicts the lse; the "
        "first such query is {}",
        rows.count, pairs_.rows.size(), query(rows));
  }

  static constexpr double kOfRounding = 0.02;

  const SightPairs& pairs_;
  PairReader reader_;
  std::vector<std::string> notes_;
};

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
    rectangle.times = block.label > kOfSomeWeight ? 1 : block.label;
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
    notes.push_back(fmt::format("{}all pairs are missing between {}", pairs.prefix, who));
  }
  if (const std::string where = distance_text(pairs.grid, pairs.judged.lengths, missing); !where.empty()) {
    notes.push_back(
        fmt::format("{}all missing pairs lie {}, where i' is the diagonal of query i, and j is the position of the key",
                    pairs.prefix, where));
  }
  if (const std::string where = distance_text(pairs.grid, pairs.judged.lengths, excess); !where.empty()) {
    notes.push_back(
        fmt::format("{}all excess pairs lie {}, where i' is the diagonal of query i, and j is the position of the key",
                    pairs.prefix, where));
  }
  return notes;
}

std::vector<std::string> notes_on_weights(const SightPairs& pairs) {
  return WeightNotes(pairs).take();
}

}  // namespace cp_pool::diagnosis
