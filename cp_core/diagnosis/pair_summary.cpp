#include "cp_core/diagnosis/pair_summary.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "cp_core/diagnosis/pair_text.h"

namespace cp_pool::diagnosis {
namespace {

constexpr std::int64_t kFewKeys = 4;

std::size_t count_of_ranks(const ProbeGrid& grid) {
  return grid.q.by_rank.size();
}

struct Counts {
  std::int64_t expected = 0;
  std::int64_t missing = 0;

  [[nodiscard]] bool apart() const { return expected > 0 && missing == expected; }
};

}  // namespace

std::vector<std::string> ranks_apart(const ProbeGrid& grid, const PairTest& expected, const PairTest& missing) {
  const std::size_t ranks = count_of_ranks(grid);
  std::vector<std::vector<Counts>> counts(ranks, std::vector<Counts>(ranks));
  for (std::int64_t i = 0; i < grid.q.size(); ++i) {
    auto& of_queries = counts[static_cast<std::size_t>(grid.q.row(i).rank)];
    for (std::int64_t j = 0; j < grid.kv.size(); ++j) {
      if (!expected(i, j)) continue;
      Counts& count = of_queries[static_cast<std::size_t>(grid.kv.row(j).rank)];
      ++count.expected;
      if (missing(i, j)) ++count.missing;
    }
  }
  std::vector<std::string> sentences;
  bool everywhere = true;
  for (std::size_t q_rank = 0; q_rank < ranks; ++q_rank) {
    std::vector<std::int64_t> apart;
    for (std::size_t kv_rank = 0; kv_rank < ranks; ++kv_rank) {
      const Counts& count = counts[q_rank][kv_rank];
      if (count.apart()) apart.push_back(static_cast<std::int64_t>(kv_rank));
      everywhere = everywhere && (count.expected == 0 || count.apart());
    }
    if (apart.empty()) continue;
    sentences.push_back(fmt::format("the queries of rank {} and the keys of rank{} {}", q_rank,
                                    apart.size() == 1 ? "" : "s", numbers_text(apart)));
  }
  return everywhere ? std::vector<std::string>{} : sentences;
}

std::string distance_text(const ProbeGrid& grid, const SequenceLengths& lengths, const PairTest& is_one) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t most = std::numeric_limits<std::int64_t>::min();
  for (std::int64_t i = 0; i < grid.q.size(); ++i) {
    const GridRow& query = grid.q.row(i);
    const auto b = static_cast<std::size_t>(query.sequence);
    const std::int64_t diagonal = query.position + lengths.valid_kv[b] - lengths.valid_q[b];
    for (std::int64_t j = 0; j < grid.kv.size(); ++j) {
      if (!is_one(i, j)) continue;
      const GridRow& key = grid.kv.row(j);
      if (key.sequence != query.sequence || key.padding || query.padding) return {};
      least = std::min(least, key.position - diagonal);
      most = std::max(most, key.position - diagonal);
      if (most - least >= kFewKeys) return {};
    }
  }
  if (least > most) return {};
  return least == most ? fmt::format("at j - i' = {}", least) : fmt::format("at j - i' from {} to {}", least, most);
}

}  // namespace cp_pool::diagnosis
