// How evenly the ranks of a case share its work.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

struct LargestShare {
  int rank = 0;
  double of_mean = 1;  // the rank's work as a multiple of the mean of all ranks

  // Returns "rank 3 computes 1.75 x the mean of the ranks".
  [[nodiscard]] std::string text() const;
};

// pairs: of each rank (RankMeasurements::pairs). nullopt if there is nothing to compute.
std::optional<LargestShare> largest_share(const std::vector<std::int64_t>& pairs);

// Cases with fewer tokens, of all sequences together, take no noticeable time.
inline constexpr std::int64_t kTokensOfALargeCase = 4096;
inline constexpr double kUnevenShare = 1.5;

// Returns the largest share of a large case that passed, if it is more than kUnevenShare of the mean. The results are
// right, but all ranks wait for one.
std::optional<LargestShare> uneven_share(const CaseFinished& event);

}  // namespace cp_pool
