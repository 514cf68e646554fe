// What a rank has begun in one of its groups of ranks: by it ranks prove after a case that they are at the same place.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "cases/fields.h"

namespace cp_pool {

struct BegunInGroup {
  std::string group;            // what group of ranks, in words: "", " of its inner group"
  int first_rank = 0;           // of the group: ranks that have the same words and first rank are in one group
  std::int64_t operations = 0;  // of which every rank of the group has begun as many, if they are at the same place

  static constexpr auto fields() {
    return std::tuple{field("group", &BegunInGroup::group), field("first_rank", &BegunInGroup::first_rank),
                      field("operations", &BegunInGroup::operations)};
  }
};

}  // namespace cp_pool
