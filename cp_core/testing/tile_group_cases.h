// Groups of tiles of every kind that tiling produces, for tests of backends.
#pragma once

#include <vector>

#include "cp_core/testing/tile_reference.h"

namespace cp_pool::test {

std::vector<GroupCase> group_cases();

// Returns the case of this name, which must exist.
GroupCase group_case(const std::string& name);

}  // namespace cp_pool::test
