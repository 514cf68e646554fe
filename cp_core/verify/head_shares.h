// Computes the expected results of a problem on all ranks together: each computes a share of the heads, and every rank
// gets the whole. Heads do not depend on each other, so on CPUs the bits are those of a single rank. The gradient of a
// bias that heads share is an exception, since its sum over heads has another order.
#pragma once

#include "cp_core/comm/communicator.h"
#include "cp_core/verify/expected.h"

namespace cp_pool::verify {

// The kv heads [first, first + count), and the query heads that read them.
struct HeadShare {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Returns the share of a rank. Shares are as equal as whole kv heads allow. Some are empty if there are fewer kv heads
// than ranks.
HeadShare head_share(std::int64_t kv_heads, int ranks, int rank);

// Collective over cp. Every rank passes the same problem and inputs, on the communicator's device. Throws CommError.
Expected compute_expected_together(const CanonicalProblem& problem, const CanonicalInputs& inputs, Communicator& cp);

}  // namespace cp_pool::verify
