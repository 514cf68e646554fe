// Makes a failing case smaller, to the smallest one that still fails.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cases/case.h"

namespace cp_pool::search {

// What has to hold for every case that is tried.
using Allowed = std::function<bool(const Case&)>;

// Gives one case after another to try, each one step simpler than the smallest that has failed: fewer ranks, sequences,
// tokens, heads and features, smaller heads. At the end no case that is one step simpler fails. No case is tried twice.
class Shrinker {
 public:
  // failing: a case that fails. allowed: beside being valid; empty: every valid case is.
  explicit Shrinker(Case failing, Allowed allowed = {});

  // The next case to try; nullopt: there is no simpler one. Each has to be followed by tell().
  std::optional<Case> next();
  // Whether the last case that next() gave fails in the same way.
  void tell(bool fails);

  [[nodiscard]] const Case& smallest() const { return smallest_; }

 private:
  void collect();

  Case smallest_;
  Allowed allowed_;
  std::set<std::string> tried_;    // the JSON of each case
  std::size_t step_ = 0;           // the kind of step that is being tried
  std::size_t steps_in_vain_ = 0;  // kinds since the smallest case became smaller
  std::vector<Case> waiting_;      // of the kind, the first to try at the end
  std::optional<Case> trying_;
};

// The same with a function that says whether a case fails; it is asked some hundred times at most.
Case shrink(Case failing, const std::function<bool(const Case&)>& fails);

}  // namespace cp_pool::search
