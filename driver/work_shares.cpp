#include "driver/work_shares.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "cases/lengths.h"

namespace cp_pool {

namespace {

std::int64_t tokens_of(const Case& c) {
  const std::vector<std::int64_t> lengths = resolve_lengths(c).valid_q;
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

}  // namespace

std::string LargestShare::text() const {
  return fmt::format("rank {} computes {:.2f} x the mean of the ranks", rank, of_mean);
}

std::optional<LargestShare> largest_share(const std::vector<std::int64_t>& pairs) {
  const double sum = std::accumulate(pairs.begin(), pairs.end(), 0.0);
  if (sum <= 0) return std::nullopt;
  const auto largest = std::ranges::max_element(pairs);
  return LargestShare{.rank = static_cast<int>(largest - pairs.begin()),
                      .of_mean = static_cast<double>(*largest) * static_cast<double>(pairs.size()) / sum};
}

std::optional<LargestShare> uneven_share(const CaseFinished& event) {
  if (event.outcome != CaseOutcome::pass) return std::nullopt;
  std::vector<std::int64_t> pairs(event.ranks.size(), 0);
  for (const protocol::RankResult& rank : event.ranks) {
    if (!rank.pairs || rank.rank < 0 || static_cast<std::size_t>(rank.rank) >= pairs.size()) return std::nullopt;
    pairs[static_cast<std::size_t>(rank.rank)] = *rank.pairs;
  }
  const std::optional<LargestShare> largest = largest_share(pairs);
  const Case* const c = event.payload->attention();
  const bool tells = largest && largest->of_mean > kUnevenShare && c != nullptr && tokens_of(*c) >= kTokensOfALargeCase;
  return tells ? largest : std::nullopt;
}

}  // namespace cp_pool
