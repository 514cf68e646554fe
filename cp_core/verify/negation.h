// Compares a step with its repetition on negated inputs.
//
// If q, k, v and dout are negated, a score (q . k) and a score's gradient (of dout and v) stay as they are. So lse,
// max_logit, dbias and dsink stay, too, and out (a sum of v), dq, dk and dv (sums of k, q and dout) are negated. That
// holds exactly, since rounding to nearest treats x and -x alike.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cp_core/verify/rank_view.h"

namespace cp_pool::verify {

// Negates q, k, v and dout in place, padding included.
void negate(Shards& shards);

// Negates out, dq, dk and dv, in new tensors.
void negate(Results& results);

// How one result of a repetition differs from that of the step.
struct Difference {
  std::string_view tensor;   // the name of the result in checks
  std::string text;          // "dk in 3 of 64 rows"
  std::int64_t earlier = 0;  // in how many rows `again` is what the step returned, negated, and not 0
};

// Compares results by value: 0 equals -0, and NaN equals NaN. A row is a (token, head) vector; a number of lse,
// max_logit or dsink is a row of its own. Rows of padding count only if the implementation promises what they hold.
// Where `again` is the result of negated inputs, negated back, Difference::earlier counts the rows that the negation
// has not reached.
std::vector<Difference> differences(const RankView& view, const Results& first, const Results& again);

}  // namespace cp_pool::verify
