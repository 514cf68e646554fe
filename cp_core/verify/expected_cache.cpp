#include "cp_core/verify/expected_cache.h"

#include <algorithm>
#include <utility>

namespace cp_pool::verify {

std::shared_ptr<const Expected> ExpectedCache::find(const CanonicalProblem& problem) {
  const auto found = std::ranges::find(entries_, problem, &Entry::problem);
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->expected;
}

void ExpectedCache::keep(const CanonicalProblem& problem, std::shared_ptr<const Expected> expected) {
  std::erase_if(entries_, [&problem](const Entry& entry) { return entry.problem == problem; });
  const std::size_t bytes = expected->bytes();
  entries_.push_front({.problem = problem, .expected = std::move(expected), .bytes = bytes});
  std::size_t kept = 0;
  std::erase_if(entries_, [&](const Entry& entry) {  // in order: the most recently used are counted first
    if (kept + entry.bytes > capacity_) return true;
    kept += entry.bytes;
    return false;
  });
}

std::size_t ExpectedCache::bytes() const {
  std::size_t total = 0;
  for (const Entry& entry : entries_) total += entry.bytes;
  return total;
}

}  // namespace cp_pool::verify
