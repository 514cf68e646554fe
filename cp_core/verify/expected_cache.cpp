#include "cp_core/verify/expected_cache.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace cp_pool::verify {

ExpectedCache::ExpectedCache(std::size_t capacity, Compute compute)
    : capacity_(capacity), compute_(std::move(compute)) {}

std::shared_ptr<const Expected> ExpectedCache::get(const CanonicalProblem& problem, const CanonicalInputs& inputs) {
  std::promise<std::shared_ptr<const Expected>> promise;
  std::list<Entry>::iterator mine;
  {
    std::unique_lock lock(mutex_);
    const auto found = std::ranges::find(entries_, problem, &Entry::problem);
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      const auto expected = found->expected;
      lock.unlock();
      return expected.get();
    }
    entries_.push_front({.problem = problem, .expected = promise.get_future().share()});
    mine = entries_.begin();
  }
  try {
    auto expected = std::make_shared<const Expected>(compute_(problem, inputs));
    promise.set_value(expected);
    const std::lock_guard lock(mutex_);
    mine->bytes = std::max<std::size_t>(expected->bytes(), 1);
    shrink();
    return expected;
  } catch (...) {
    promise.set_exception(std::current_exception());
    const std::lock_guard lock(mutex_);
    entries_.erase(mine);
    throw;
  }
}

std::size_t ExpectedCache::bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t total = 0;
  for (const Entry& entry : entries_) total += entry.bytes;
  return total;
}

void ExpectedCache::shrink() {
  std::size_t kept = 0;
  std::erase_if(entries_, [&](const Entry& entry) {  // in order: the most recently used are counted first
    if (entry.bytes == 0 || kept + entry.bytes <= capacity_) {
      kept += entry.bytes;
      return false;
    }
    return true;
  });
}

}  // namespace cp_pool::verify
