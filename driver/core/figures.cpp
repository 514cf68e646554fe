#include "driver/core/figures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_groups.h"
#include "cases/lengths.h"
#include "driver/core/mapped.h"

namespace cp_pool {

namespace {

using protocol::RankResult;

bool can_be(double figure) {
  return std::isfinite(figure) && figure >= 0;
}

// The figure that shows the check to be wrong, in words. Empty if none does, and for a check without figures.
std::string fault_of(const Check& check) {
  if (!check.measured) return {};
  for (const auto& [name, value] :
       {std::pair{"error", check.error}, {"bound", check.bound}, {"max_abs", check.max_abs}, {"rms", check.rms}}) {
    if (!can_be(value)) return fmt::format("{} {:.3g}", name, value);
  }
  // All digits are shown. Rounded, an error just above its bound would look as if it were within the bound.
  return check.error > check.bound ? fmt::format("error {} > bound {}", check.error, check.bound) : std::string{};
}

std::string name_of(const Check& check) {
  return fmt::format("{} of rank {}", check.tensor, check.rank);
}

// The ranks 0 .. world_size - 1 that are not in `known`.
std::vector<int> missing_ranks(const std::set<int>& known, int world_size) {
  std::vector<int> missing;
  for (int rank = 0; rank < world_size; ++rank) {
    if (!known.contains(rank)) missing.push_back(rank);
  }
  return missing;
}

std::set<int> ranks_with_figures(const std::vector<Check>& checks) {
  std::set<int> ranks;
  for (const Check& check : checks) {
    if (check.measured) ranks.insert(check.rank);
  }
  return ranks;
}

}  // namespace

std::optional<double> error_over_bound(const Check& check) {
  if (!check.measured || std::isnan(check.error) || check.error < 0 || !can_be(check.bound)) return std::nullopt;
  if (check.bound > 0) return check.error / check.bound;
  return check.error == 0 ? 0 : std::numeric_limits<double>::infinity();
}

double nearness(const Check& check) {
  if (!check.measured) return -1;
  return error_over_bound(check).value_or(std::numeric_limits<double>::infinity());
}

std::string ratio_text(const Check& check) {
  const std::optional<double> ratio = error_over_bound(check);
  return ratio ? fmt::format("{:.2f}", *ratio) : "-";
}

std::string contradiction_in(const protocol::ResultEvent& result, int world_size, bool cancelled) {
  std::set<int> ranks;
  for (const protocol::RankResult& rank : result.ranks) {
    if (rank.rank < 0 || rank.rank >= world_size) {
      return fmt::format("a result of rank {}, of {} ranks", rank.rank, world_size);
    }
    if (!ranks.insert(rank.rank).second) return fmt::format("a result with rank {} twice", rank.rank);
  }
  for (const Check& check : result.checks) {
    if (check.rank >= 0 && check.rank < world_size) continue;
    return fmt::format("a check of rank {}, of {} ranks", check.rank, world_size);
  }
  if (result.outcome == CaseOutcome::cancelled && !cancelled) {
    return "a result \"cancelled\", though nothing was cancelled";
  }
  return {};
}

std::string refutation_of_pass(const protocol::ResultEvent& result, int world_size, bool figures_promised) {
  const auto rank = std::ranges::find(result.ranks, false, &RankResult::ok);
  if (rank != result.ranks.end()) return fmt::format("a result \"pass\", though rank {} is not ok", rank->rank);
  if (!result.ranks.empty()) {
    std::set<int> told;
    for (const RankResult& of : result.ranks) told.insert(of.rank);
    if (const auto missing = missing_ranks(told, world_size); !missing.empty()) {
      return fmt::format("a result \"pass\" whose ranks lack {} of {}", name_ranks(missing), world_size);
    }
  }
  for (const Check& check : result.checks) {
    if (!check.ok) return fmt::format("a result \"pass\", though {} is not ok", name_of(check));
    if (const std::string fault = fault_of(check); !fault.empty()) {
      return fmt::format("a result \"pass\", though {} has {}", name_of(check), fault);
    }
    if (figures_promised && !check.measured) {
      return fmt::format("a result \"pass\" without error and bound of {} (the worker promises figures)",
                         name_of(check));
    }
  }
  if (!figures_promised) return {};
  const auto missing = missing_ranks(ranks_with_figures(result.checks), world_size);
  if (missing.empty()) return {};
  return fmt::format("a result \"pass\" without a check of {} (the worker promises figures)", name_ranks(missing));
}

void correct_checks(protocol::ResultEvent& result) {
  for (Check& check : result.checks) {
    if (!check.ok || fault_of(check).empty()) continue;
    check.ok = false;
    check.message += check.message.empty() ? "the worker calls it ok" : " (the worker calls it ok)";
  }
}

bool is_unverified_by_figures(const CaseFinished& event) {
  return event.outcome == CaseOutcome::pass && event.payload->has_figures() &&
         !missing_ranks(ranks_with_figures(event.checks), event.payload->ranks()).empty();
}

bool is_checked_by_itself(const CaseFinished& event) {
  return event.outcome == CaseOutcome::pass && !event.payload->has_figures();
}

std::string words_on_pass(const CaseFinished& event) {
  if (is_unverified_by_figures(event)) return kUnverifiedByFigures;
  return is_checked_by_itself(event) ? kCheckedByItself : "";
}

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
  if (!largest || largest->of_mean <= kUnevenShare || c == nullptr) return std::nullopt;
  const std::vector<std::int64_t> lengths = resolve_lengths(*c).valid_q;
  const std::int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return tokens >= kTokensOfALargeCase ? largest : std::nullopt;
}

std::string name_ranks(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  std::vector<std::string> parts;
  for (const auto& [begin, end] : stretches(ranks, [](int one, int next) { return next == one + 1; })) {
    parts.push_back(std::to_string(ranks[begin]));
    // Two in a row are listed one by one.
    if (end - begin > 1) parts.back() += fmt::format("{}{}", end - begin > 2 ? "-" : ", ", ranks[end - 1]);
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(parts, ", "));
}

char rank_letter(int rank) {
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@&";
  static_assert(kLetters.size() == kMostCaseRanks);
  return rank >= 0 && rank < kMostCaseRanks ? kLetters[static_cast<std::size_t>(rank)] : '?';
}

}  // namespace cp_pool
