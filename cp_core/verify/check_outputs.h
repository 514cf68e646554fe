// Holds all results of a rank's step against what is expected of them.
#pragma once

#include <vector>

#include "cp_core/trial/run_case.h"
#include "cp_core/verify/expected.h"
#include "cp_core/verify/rank_step.h"

namespace cp_pool::verify {

// One check a tensor that the case asks for. A result of the wrong dtype or shape, or none, is a failed check.
std::vector<Check> check_outputs(const Case& c, const Expected& expected, const RankView& view, const Outputs& outputs);

// Those of gradients alone, of a case that has them.
std::vector<Check> check_gradients(const Case& c, const Expected& expected, const RankView& view,
                                   const AttentionGradients& gradients);

// expected: of a mask probe.
std::vector<Check> check_mask_probe(const Case& c, const Expected& expected, const RankView& view,
                                    const Outputs& outputs);

}  // namespace cp_pool::verify
