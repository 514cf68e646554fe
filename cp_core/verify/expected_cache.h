// Keeps expected results across cases, since the same problem recurs with other layouts, communication types and
// backends. Each rank has one cache, and uses it from one thread at a time.
#pragma once

#include <cstddef>
#include <memory>

#include "cp_core/lru_cache.h"
#include "cp_core/verify/canonical.h"
#include "cp_core/verify/expected.h"

namespace cp_pool::verify {

class ExpectedCache {
 public:
  // Drops the least recently used entries when all entries together exceed `capacity` bytes.
  explicit ExpectedCache(std::size_t capacity) : entries_(capacity) {}

  // Returns null if the problem is not cached. The result stays valid after the cache has dropped it.
  std::shared_ptr<const Expected> find(const CanonicalProblem& problem);
  // Replaces the entry of an equal problem. An entry larger than the capacity is not kept.
  void keep(const CanonicalProblem& problem, std::shared_ptr<const Expected> expected);

  void clear() { entries_.clear(); }

  [[nodiscard]] std::size_t bytes() const { return entries_.weight(); }

 private:
  LruCache<CanonicalProblem, std::shared_ptr<const Expected>> entries_;  // weight in bytes
};

}  // namespace cp_pool::verify
