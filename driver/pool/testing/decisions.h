// Picks the decisions of one kind out of those of a scheduler.
#pragma once

#include <variant>
#include <vector>

#include "driver/pool/scheduler.h"

namespace cp_pool::fleet_test {

template <typename T>
std::vector<T> all(const std::vector<Decision>& decisions) {
  std::vector<T> out;
  for (const Decision& decision : decisions) {
    if (const auto* d = std::get_if<T>(&decision)) out.push_back(*d);
  }
  return out;
}

}  // namespace cp_pool::fleet_test
