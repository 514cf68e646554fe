// Faults that CP_POOL_INJECT asks of ranks (docs/protocol.md).
#pragma once

#include <vector>

#include "driver/core/run.h"

namespace cp_pool {

// Refuses a fault of CP_POOL_INJECT that would never happen, since none of the cases that it names has its rank. Leaves
// a fault that it cannot read to the worker. Throws CommandError (usage).
void expect_injected_ranks(const std::vector<Item>& cases);

}  // namespace cp_pool
