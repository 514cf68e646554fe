// Expected results kept across cases: the same problem comes again with other layouts, communication types and
// backends. Shared by ranks that are threads of one process: the first to ask computes, the others wait for it.
#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>

#include "cp_core/verify/canonical.h"
#include "cp_core/verify/expected.h"

namespace cp_pool::verify {

class ExpectedCache {
 public:
  using Compute = std::function<Expected(const CanonicalProblem&, const CanonicalInputs&)>;

  // Keeps the least recently used out once the rest exceeds `capacity` bytes. A single larger one is not kept.
  explicit ExpectedCache(std::size_t capacity, Compute compute = compute_expected);

  // inputs: those of the problem. Rethrows what the computation throws, to everyone who waits for it; the next to ask
  // computes again.
  std::shared_ptr<const Expected> get(const CanonicalProblem& problem, const CanonicalInputs& inputs);

  [[nodiscard]] std::size_t bytes() const;

 private:
  struct Entry {
    CanonicalProblem problem;
    std::shared_future<std::shared_ptr<const Expected>> expected;
    std::size_t bytes = 0;  // 0 while being computed
  };

  void shrink();

  const std::size_t capacity_;
  const Compute compute_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
};

}  // namespace cp_pool::verify
