#include "cp_core/verify/ownership.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include "cases/lengths.h"

namespace cp_pool::verify {
namespace {

// Returns the canonical row of each sequence's first token, then the number of all rows.
std::vector<std::int64_t> starts_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> starts(lengths.size() + 1, 0);
  std::inclusive_scan(lengths.begin(), lengths.end(), starts.begin() + 1);
  return starts;
}

std::int64_t sequence_of(std::int64_t canonical, const std::vector<std::int64_t>& starts) {
  return std::ranges::upper_bound(starts, canonical) - starts.begin() - 1;
}

std::string describe(std::int64_t canonical, std::string_view side, const std::vector<std::int64_t>& starts) {
  const std::int64_t sequence = sequence_of(canonical, starts);
  return fmt::format("row {} of {} (sequence {}, position {})", canonical, side, sequence,
                     canonical - starts[static_cast<std::size_t>(sequence)]);
}

// Returns why the rows of a rank do not form a rectangle of sequences and rows, as shards in bshd and sbhd must; empty
// if they do.
std::string shape_fault(const std::vector<LocalRow>& rows, std::size_t sequences, std::size_t rank,
                        std::string_view side) {
  const std::size_t each = rows.size() / std::max<std::size_t>(sequences, 1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (each * sequences == rows.size() && rows[i].sequence == static_cast<std::int64_t>(i / each)) continue;
    return fmt::format(
        "rank {} does not hold equally many rows of {} of every sequence, one sequence after the other, as bshd and "
        "sbhd need",
        rank, side);
  }
  return {};
}

}  // namespace

std::vector<LocalRow> local_rows(const std::vector<std::int64_t>& canonical, const std::vector<std::int64_t>& valid) {
  const std::vector<std::int64_t> starts = starts_of(valid);
  std::vector<LocalRow> rows;
  rows.reserve(canonical.size());
  std::int64_t sequence = 0;
  for (const std::int64_t row : canonical) {
    if (row < -1 || row >= starts.back()) {
      throw std::out_of_range(
          fmt::format("row {} is none of {} valid rows, and -1 alone is padding", row, starts.back()));
    }
    if (row < 0) {
      rows.push_back({.sequence = sequence, .position = -1, .canonical = -1});
      continue;
    }
    sequence = sequence_of(row, starts);
    rows.push_back(
        {.sequence = sequence, .position = row - starts[static_cast<std::size_t>(sequence)], .canonical = row});
  }
  return rows;
}

std::string ownership_fault(const RowsByRank& by_rank, const std::vector<std::int64_t>& valid, Layout layout,
                            std::string_view side, std::int64_t replicated) {
  const std::vector<std::int64_t> starts = starts_of(valid);
  constexpr int kNobody = -1;
  // For each row, the last rank so far that holds it; ranks are visited in order.
  std::vector<int> owner(static_cast<std::size_t>(starts.back()), kNobody);
  const auto lacks = [&](int rank, std::int64_t canonical) {
    return fmt::format("rank {} lacks {}, which is replicated: every rank holds it", rank,
                       describe(canonical, side, starts));
  };
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (layout != Layout::thd) {
      if (std::string fault = shape_fault(by_rank[rank], valid.size(), rank, side); !fault.empty()) return fault;
    }
    for (const LocalRow& row : by_rank[rank]) {
      if (row.canonical < 0) continue;
      int& known = owner.at(static_cast<std::size_t>(row.canonical));
      if (known == static_cast<int>(rank)) {
        return fmt::format("rank {} owns {} twice", rank, describe(row.canonical, side, starts));
      }
      const bool on_every_rank = row.position < replicated;
      if (on_every_rank && known != static_cast<int>(rank) - 1) return lacks(known + 1, row.canonical);
      if (known != kNobody && !on_every_rank) {
        return fmt::format("ranks {} and {} both own {}", known, rank, describe(row.canonical, side, starts));
      }
      known = static_cast<int>(rank);
    }
  }
  for (std::size_t b = 0; b < valid.size(); ++b) {
    for (std::int64_t row = starts[b]; row < starts[b] + replicated_tokens(replicated, valid[b]); ++row) {
      const int last = owner[static_cast<std::size_t>(row)];
      if (last != static_cast<int>(by_rank.size()) - 1) return lacks(last + 1, row);
    }
  }
  const auto unowned = std::ranges::find(owner, kNobody);
  if (unowned == owner.end()) return {};
  return fmt::format("no rank owns {}", describe(unowned - owner.begin(), side, starts));
}

}  // namespace cp_pool::verify
