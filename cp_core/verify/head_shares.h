// The expected results of a problem, computed by all ranks together: each computes a share of the heads, and every rank
// gets the whole. Heads do not depend on each other, so on CPUs the bits are those of one rank alone, but for the
// gradient of a bias that heads share: its sum over heads has another order.
#pragma once

#include "cp_core/comm/communicator.h"
#include "cp_core/verify/expected.h"

namespace cp_pool::verify {

// kv heads [first, first + count), and the query heads that share them.
struct HeadShare {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// The share of a rank. Shares are as equal as whole kv heads allow; some are empty if there are fewer heads than ranks.
HeadShare head_share(std::int64_t kv_heads, int ranks, int rank);

// Collective. The same problem and inputs on every rank, on the communicator's device. Throws CommError.
Expected compute_expected_together(const CanonicalProblem& problem, const CanonicalInputs& inputs, Communicator& cp);

}  // namespace cp_pool::verify
