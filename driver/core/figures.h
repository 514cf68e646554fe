// Judges the figures in a worker's checks independently of the worker's own verdict.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driver/core/events.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// Returns error / bound of the worst row; above 1 the tensor is wrong. nullopt if there is no such ratio: without
// figures, for a NaN or negative error, and for a bound that is NaN, infinite or negative. Never NaN; infinite if the
// bound is 0 and the error is not.
std::optional<double> error_over_bound(const Check& check);

// Orders checks by how near they came to their bounds: their ratio, which is infinite for figures without one, such as
// a NaN. Negative without figures.
double nearness(const Check& check);

// Returns the ratio as reports show it: "0.43"; "-" if there is none.
std::string ratio_text(const Check& check);

// Returns what in a result cannot be true of this worker group or case: a rank that does not exist, a rank that is
// listed twice, or "cancelled" though nothing was cancelled. Empty if nothing is wrong.
std::string contradiction_in(const protocol::ResultEvent& result, int world_size, bool cancelled);

// Returns why a result "pass" of world_size ranks contradicts itself: a sentence that names rank, tensor and figures.
// Empty if it does not. figures_promised: the worker's capabilities have `figures`, so it has to give figures for every
// rank and in every check.
std::string refutation_of_pass(const protocol::ResultEvent& result, int world_size, bool figures_promised);

// Marks as wrong all checks that the worker calls ok although their figures say otherwise.
void correct_checks(protocol::ResultEvent& result);

// Whether the event is a pass that only the worker's word confirms: at least one rank gave no check with error and
// bound.
bool is_unverified_by_figures(const CaseFinished& event);

// Whether the event is a pass of something that figures do not apply to: a call, whose function decides.
bool is_checked_by_itself(const CaseFinished& event);

// The words of every report for such passes.
inline constexpr const char* kUnverifiedByFigures = "unverified by figures";
inline constexpr const char* kCheckedByItself = "checked by itself";

// Returns these words if they apply to the event; else an empty text.
std::string words_on_pass(const CaseFinished& event);

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

// Returns "rank 3", "ranks 0, 1", "ranks 0-6, 9" and the like, in ascending order.
std::string name_ranks(std::vector<int> ranks);

// Returns one character for each of the ranks that a case can have: '0' to '9', then letters, '@' and '&'. Any other
// number, which only a foreign worker can send, gives '?'.
char rank_letter(int rank);

}  // namespace cp_pool
