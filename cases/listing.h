// What `cp-pool list` shows.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "cases/json_place.h"
#include "cases/matrix.h"

namespace cp_pool {

// An array with {id, world_size, size, tags, case} for each case, in order. `case` is what `cp-pool submit` takes.
Json list_as_json(std::span<const MatrixCase> cases);

std::map<std::string, std::size_t> count_by_suite(std::span<const MatrixCase> cases);

}  // namespace cp_pool
