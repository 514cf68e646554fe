#include "cp_core/diagnosis/pair_text.h"

#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cp_pool::diagnosis {
namespace {

// "rank 1", "chunks 1..3".
std::string named_numbers(std::string_view noun, const std::set<std::int64_t>& numbers) {
  return fmt::format("{}{} {}", noun, numbers.size() == 1 ? "" : "s",
                     numbers_text(std::vector<std::int64_t>(numbers.begin(), numbers.end())));
}

// Says where the rows are: "rank 1", "chunk 1, rank 0".
std::string place_text(const GridAxis& axis, RowSpan rows, bool with_chunk) {
  std::set<std::int64_t> ranks;
  std::set<std::int64_t> chunks;
  for (std::int64_t i = rows.first; i <= rows.last; ++i) {
    ranks.insert(axis.row(i).rank);
    if (axis.row(i).chunk >= 0) chunks.insert(axis.row(i).chunk);
  }
  const std::string of_ranks = named_numbers("rank", ranks);
  return with_chunk && !chunks.empty() ? fmt::format("{}, {}", named_numbers("chunk", chunks), of_ranks) : of_ranks;
}

struct Noun {
  std::string_view one;
  std::string_view several;
};

std::string rows_text(const GridAxis& axis, RowSpan rows, Noun noun, bool names_sequence, bool with_chunk) {
  const GridRow& first = axis.row(rows.first);
  const std::int64_t last = axis.row(rows.last).position;
  const std::string_view called = rows.first == rows.last ? noun.one : noun.several;
  const std::string positions =
      rows.first == rows.last ? fmt::format("{}", last) : fmt::format("{}..{}", first.position, last);
  std::string text =
      first.padding ? fmt::format("{} padding {}", rows.last - rows.first + 1, called) : std::string(called);
  if (!first.padding || axis.places_padding) text += fmt::format(" {}", positions);
  if (names_sequence) text += fmt::format(" of sequence {}", first.sequence);
  return fmt::format("{} ({})", text, place_text(axis, rows, with_chunk));
}

void mark_axis(std::vector<bool>& borders, const GridAxis& axis) {
  for (std::size_t i = 1; i < axis.rows.size(); ++i) {
    const GridRow& before = axis.rows[i - 1];
    borders[i] = axis.rows[i].sequence != before.sequence || axis.rows[i].padding != before.padding;
  }
}

}  // namespace

std::string numbers_text(const std::vector<std::int64_t>& numbers) {
  const bool a_run =
      numbers.size() > 2 && numbers.back() - numbers.front() + 1 == static_cast<std::int64_t>(numbers.size());
  if (a_run) return fmt::format("{}..{}", numbers.front(), numbers.back());
  return fmt::format("{}", fmt::join(numbers, ", "));
}

std::string times_text(std::int64_t times) {
  if (times == 1) return "once";
  return times == 2 ? "twice" : fmt::format("{} times", times);
}

std::string queries_text(const GridAxis& axis, RowSpan rows) {
  return rows_text(axis, rows, {"query", "queries"}, axis.sequences() > 1, /*with_chunk=*/false);
}

std::string keys_text(const GridAxis& axis, RowSpan rows, std::int64_t sequence_of_queries) {
  const bool names_sequence = axis.row(rows.first).sequence != sequence_of_queries;
  return rows_text(axis, rows, {"key", "keys"}, names_sequence, /*with_chunk=*/true);
}

void mark_borders(PairLabels& labels, const ProbeGrid& grid) {
  mark_axis(labels.q_border, grid.q);
  mark_axis(labels.kv_border, grid.kv);
}

PairRectangle rectangle_of(const ProbeGrid& grid, const PairBlock& block) {
  PairRectangle rectangle;
  rectangle.q_sequence = grid.q.row(block.q_first).sequence;
  rectangle.q_first = grid.q.row(block.q_first).position;
  rectangle.q_last = grid.q.row(block.q_last).position;
  rectangle.kv_sequence = grid.kv.row(block.kv_first).sequence;
  rectangle.kv_first = grid.kv.row(block.kv_first).position;
  rectangle.kv_last = grid.kv.row(block.kv_last).position;
  return rectangle;
}

}  // namespace cp_pool::diagnosis
