// Judges the figures of a worker's checks independently of the worker's own verdict.
#pragma once

#include <optional>
#include <string>

#include "driver/events.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// error / bound of the worst row; above 1 the tensor is wrong. None where there is no such ratio: without figures, for
// a NaN, for a bound that is infinite or negative. Never NaN; infinite for an error where the bound is 0.
std::optional<double> error_over_bound(const Check& check);

// The ratio as reports show it: "0.43"; "-" if there is none.
std::string ratio_text(const Check& check);

// What in a result is not of this group or case: ranks that it does not have, one twice, "cancelled" though nothing
// was; empty: nothing.
std::string contradiction_in(const protocol::ResultEvent& result, int world_size, bool cancelled);

// Why a result "pass" of world_size ranks is none by its own account: a sentence that names rank, tensor and figures;
// empty if nothing speaks against it. figures_promised: the worker lists `figures` in its capabilities, so that it owes
// figures of every rank and in every check.
std::string refutation_of_pass(const protocol::ResultEvent& result, int world_size, bool figures_promised);

// Marks the checks as wrong that the worker calls ok and whose figures say otherwise.
void correct_checks(protocol::ResultEvent& result);

// A pass that rests on the worker's word alone: some rank gave no check with error and bound.
bool is_unverified_by_figures(const CaseFinished& event);

// The words for it in every report.
inline constexpr const char* kUnverifiedByFigures = "unverified by figures";

}  // namespace cp_pool
