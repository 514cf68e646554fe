// Computes the problem as an eager implementation without context parallelism does in the problem's dtype. Its errors
// show what rounding alone does to the results.
#pragma once

#include "cp_core/verify/reference.h"

namespace cp_pool::verify {

// The largest numbers of the types of FP8.
inline constexpr double kLargestE4m3 = 448;
inline constexpr double kLargestE5m2 = 57344;

// Returns fp32 tensors that hold values of the dtype. Products of matrices are accumulated in fp32 and rounded; scores,
// probabilities and their gradients are rounded too. lse is the exception: it is computed in fp32 from fp32 scores,
// since every implementation has those, and an lse of 16 bits could hide any fault. With a score_offset, all scores
// stay in fp32: 16 bits would round away what distinguishes them. sum_shares: if the problem is a share of another's
// heads, sums the gradient of a bias that heads share over the shares before it is rounded.
Results compute_baseline(const CanonicalProblem& problem, const CanonicalInputs& inputs,
                         const SumShares& sum_shares = {});

}  // namespace cp_pool::verify
