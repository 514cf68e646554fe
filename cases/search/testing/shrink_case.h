// Shrinks a case with a function that says at once whether a case fails.
#pragma once

#include <utility>

#include "cases/search/shrink.h"

namespace cp_pool::search::test {

// `fails` is called some hundred times at most.
template <typename Predicate>
Case shrink(Case failing, const Predicate& fails) {
  Shrinker shrinker(std::move(failing));
  while (const auto simpler = shrinker.next()) shrinker.tell(fails(*simpler));
  return shrinker.smallest();
}

}  // namespace cp_pool::search::test
