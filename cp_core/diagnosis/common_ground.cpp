// Summarises where results are wrong.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cp_core/diagnosis/hypothesis_check.h"
#include "cp_core/diagnosis/wrong_pairs.h"

namespace cp_pool::diagnosis {
namespace {

std::set<std::int64_t> numbers_of(const at::Tensor& flags) {
  const at::Tensor found = flags.nonzero().flatten();
  const auto* const data = found.const_data_ptr<std::int64_t>();
  return {data, data + found.numel()};
}

std::string on_ranks(const DenseProblem& dense, const std::set<std::int64_t>& ranks) {
  if (static_cast<int>(ranks.size()) == dense.ranks) return dense.ranks == 1 ? "" : ", on all ranks";
  return fmt::format(", on {} only", named_numbers("rank", ranks));
}

// Names the wrong heads; empty if all heads are wrong. wrong: bool [heads].
std::string in_heads(const at::Tensor& wrong) {
  const std::set<std::int64_t> heads = numbers_of(wrong);
  const auto wrong_heads = static_cast<std::int64_t>(heads.size());
  if (wrong_heads == wrong.numel()) return {};
  const auto apart = [](std::int64_t head, std::int64_t next) { return next != head + 2; };
  const bool every_second =
      wrong_heads > 1 && 2 * wrong_heads >= wrong.numel() && std::ranges::adjacent_find(heads, apart) == heads.end();
  return fmt::format(", in {} of {}{}", named_numbers("head", heads), wrong.numel(),
                     every_second ? " (every second)" : "");
}

// Names properties that all wrong rows have. Correct rows may have them too. wrong: bool, one per row.
std::string in_rows(const Side& side, const at::Tensor& wrong) {
  const auto all = [&](const at::Tensor& flags) { return !wrong.logical_and(flags.logical_not()).any().item<bool>(); };
  std::vector<std::string> parts;
  if (all(side.valid.logical_not())) return ", in rows of padding only";
  for (const std::int64_t half : {0, 1}) {
    if (all(side.half.eq(half))) {
      parts.emplace_back(half == 0 ? "the first chunk of each rank" : "the second chunk of each rank");
    }
  }
  const at::Tensor sequences = side.sequence.masked_select(wrong);
  const auto first = sequences.min().item<std::int64_t>();
  const bool one_sequence = first == sequences.max().item<std::int64_t>();
  if (one_sequence && side.sequence.max().item<std::int64_t>() > 0) parts.push_back(fmt::format("sequence {}", first));
  const at::Tensor positions = side.position.masked_select(wrong);
  const auto low = positions.min().item<std::int64_t>();
  const auto high = positions.max().item<std::int64_t>();
  if (low > side.position.min().item<std::int64_t>() || high < side.position.max().item<std::int64_t>()) {
    parts.push_back(low == high ? fmt::format("position {}", low) : fmt::format("positions {}..{}", low, high));
  }
  const auto rows = wrong.sum().item<std::int64_t>();
  const auto valid = side.valid.sum().item<std::int64_t>();
  if (parts.empty()) return rows < valid ? fmt::format(", in {} of {} rows", rows, valid) : "";
  return fmt::format(", in {} rows of {}", rows, fmt::join(parts, ", "));
}

constexpr std::int64_t kMostStripCells = 96;

// Returns the largest value of each cell of `per_cell` values.
std::vector<double> cells_of(const at::Tensor& values, std::int64_t per_cell) {
  std::vector<double> cells;
  for (std::int64_t first = 0; first < values.numel(); first += per_cell) {
    const std::int64_t count = std::min(per_cell, values.numel() - first);
    cells.push_back(std::min(values.narrow(0, first, count).max().item<double>(), ErrorStrip::kOffTheScale));
  }
  return cells;
}

// Returns the cells that contain a row which does not continue the row before it.
std::vector<std::int64_t> borders_of(const Side& side, int rank, std::int64_t per_cell) {
  std::vector<std::int64_t> borders;
  const std::int64_t first = side.first[static_cast<std::size_t>(rank)];
  const std::int64_t count = side.first[static_cast<std::size_t>(rank) + 1] - first;
  const auto* const sequence = side.sequence.const_data_ptr<std::int64_t>() + first;
  const auto* const position = side.position.const_data_ptr<std::int64_t>() + first;
  for (std::int64_t row = 1; row < count; ++row) {
    if (sequence[row] == sequence[row - 1] && position[row] == position[row - 1] + 1) continue;
    const std::int64_t cell = row / per_cell;
    if (cell > 0 && (borders.empty() || borders.back() != cell)) borders.push_back(cell);
  }
  return borders;
}

}  // namespace

std::string common_ground(const HypothesisCheck& check) {
  const DenseProblem& dense = check.dense();
  std::vector<std::pair<std::string, std::vector<std::string_view>>> grounds;  // each with the results that have it
  for (const Given& given : check.fits().given()) {
    const at::Tensor wrong = check.fits().errors(given).gt(1.0);
    if (!wrong.any().item<bool>()) continue;
    const std::set<std::int64_t> ranks = numbers_of(given.rank.masked_select(wrong.any(-1)).bincount());
    const Side* const side = dense.side_of(given.member);
    const bool nan = !wrong.logical_and(given.value.isnan().any(-1).logical_not()).any().item<bool>();
    const std::string where = (nan ? "NaN" : "wrong") + on_ranks(dense, ranks) + in_heads(wrong.any(0)) +
                              (side == nullptr ? "" : in_rows(*side, wrong.any(-1)));
    const auto same = std::ranges::find(grounds, where, &decltype(grounds)::value_type::first);
    (same == grounds.end() ? grounds.emplace_back(where, 0) : *same).second.push_back(given.name);
  }
  std::string text;
  for (const auto& [where, names] : grounds) {
    text += fmt::format("{}{} {} {}", text.empty() ? "" : "; ", fmt::join(names, ", "),
                        names.size() == 1 ? "is" : "are", where);
  }
  return text;
}

std::vector<ErrorStrip> error_strips(const HypothesisCheck& check) {
  std::vector<ErrorStrip> strips;
  const DenseProblem& dense = check.dense();
  for (int rank = 0; rank < dense.ranks; ++rank) {
    for (const Given& given : check.fits().given()) {
      const at::Tensor of_rank = check.fits().errors(given).index_select(0, given.rank.eq(rank).nonzero().flatten());
      if (of_rank.numel() == 0 || of_rank.max().item<double>() <= 1) continue;
      ErrorStrip strip;
      strip.tensor = given.name;
      strip.rank = rank;
      strip.rows_per_cell = (of_rank.size(0) + kMostStripCells - 1) / kMostStripCells;
      strip.by_row = cells_of(of_rank.amax(1), strip.rows_per_cell);
      strip.by_head = cells_of(of_rank.amax(0), 1);
      if (const Side* const side = dense.side_of(given.member)) {
        strip.borders = borders_of(*side, rank, strip.rows_per_cell);
      }
      strips.push_back(std::move(strip));
    }
  }
  return strips;
}

}  // namespace cp_pool::diagnosis
