#include "cp_core/verify/expected_cache.h"

#include <utility>

namespace cp_pool::verify {

std::shared_ptr<const Expected> ExpectedCache::find(const CanonicalProblem& problem) {
  const auto* found = entries_.find(problem);
  return found == nullptr ? nullptr : *found;
}

void ExpectedCache::keep(const CanonicalProblem& problem, std::shared_ptr<const Expected> expected) {
  const std::size_t bytes = expected->bytes();
  entries_.keep(problem, std::move(expected), bytes);
}

}  // namespace cp_pool::verify
