// Compares all results of a rank's step with the reference.
#pragma once

#include <vector>

#include "cases/case_report.h"
#include "cp_core/verify/expected.h"
#include "cp_core/verify/rank_view.h"

namespace cp_pool::verify {

// Returns one check for each result that the case asks for. A result that is missing or has a wrong dtype or shape
// gives a failed check.
std::vector<Check> check_outputs(const Case& c, const Expected& expected, const RankView& view, const Results& results);

// Compares Results::part_lse, which must be defined, with the lse of the keys that the rank holds.
Check check_part_lse(const CanonicalProblem& problem, const CanonicalInputs& inputs, const RankView& view,
                     const Results& results);

// Compares Results::fp8_scales, which must be defined, with the inputs of all ranks: the largest magnitudes have to be
// those, and the scales of current scaling have to bring them into the upper half of the range of the FP8 type. A part
// that was scaled by its own rank's numbers is read with another scale on other ranks. Returns a check for each that
// the implementation tells.
std::vector<Check> check_fp8_scales(const CanonicalProblem& problem, const CanonicalInputs& inputs,
                                    const Results& results);

// Compares a step on the inputs of a weight probe (mask_probe.h).
Check check_weight_probe(const Case& c, const Expected& expected, const RankView& view, const Results& results);

// The same for gradients only. The case must train.
std::vector<Check> check_gradients(const Case& c, const Expected& expected, const RankView& view,
                                   const Results& results);

// The same for a mask probe. expected: MaskProbe::expected.
std::vector<Check> check_mask_probe(const Case& c, const Expected& expected, const RankView& view,
                                    const Results& results);

}  // namespace cp_pool::verify
