// Keeps expected results across cases: the same problem comes again with other layouts, communication types and
// backends. Each rank has one, and uses it from one thread at a time.
#pragma once

#include <cstddef>
#include <memory>

#include "cp_core/lru_cache.h"
#include "cp_core/verify/canonical.h"
#include "cp_core/verify/expected.h"

namespace cp_pool::verify {

class ExpectedCache {
 public:
  // Forgets the least recently used entries when all together exceed `capacity` bytes.
  explicit ExpectedCache(std::size_t capacity) : entries_(capacity) {}

  // Null if the problem is not there. The result stays valid when the cache forgets it.
  std::shared_ptr<const Expected> find(const CanonicalProblem& problem);
  // Replaces the entry of an equal problem. An entry larger than the capacity is not kept.
  void keep(const CanonicalProblem& problem, std::shared_ptr<const Expected> expected);

  void clear() { entries_.clear(); }

  [[nodiscard]] std::size_t bytes() const { return entries_.weight(); }

 private:
  LruCache<CanonicalProblem, std::shared_ptr<const Expected>> entries_;  // weighed in bytes
};

}  // namespace cp_pool::verify
