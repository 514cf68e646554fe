// How many operations a rank has begun in one of its groups of ranks. After a case, ranks compare these counts to prove
// that they are at the same place.
#pragma once

#include <cstdint>
#include <string>

#include "cases/fields.h"

namespace cp_pool {

struct BegunInGroup {
  std::string group;            // the group in words, as messages append it: "" or " of its inner group"
  int first_rank = 0;           // first rank of the group; ranks with equal `group` and `first_rank` are in one group
  std::int64_t operations = 0;  // operations begun; equal on every rank of the group if all are at the same place

  static constexpr auto fields() {
    return FieldList{optional<&BegunInGroup::group, &BegunInGroup::first_rank, &BegunInGroup::operations>()};
  }
};

}  // namespace cp_pool
