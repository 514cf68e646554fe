// Shrinks a failing case to a smallest one that still fails.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cases/case.h"

namespace cp_pool::search {

// A condition that every tried case must meet.
using Allowed = std::function<bool(const Case&)>;

// Returns one case after another to try. Each is one step simpler than the smallest case that has failed: fewer ranks,
// sequences, tokens, heads or features, or smaller heads. At the end no case that is one step simpler fails. No case is
// returned twice.
class Shrinker {
 public:
  // failing: a case that fails. allowed: a condition for the cases to try, in addition to being valid; empty: none.
  explicit Shrinker(Case failing, Allowed allowed = {});

  // Returns the next case to try; nullopt if there is no simpler one. The caller runs it and then calls tell().
  std::optional<Case> next();
  // fails: whether the case that next() returned last fails in the same way.
  void tell(bool fails);

  [[nodiscard]] const Case& smallest() const { return smallest_; }

 private:
  void collect();

  Case smallest_;
  Allowed allowed_;
  std::set<std::string> tried_;    // the JSON of each case
  std::size_t step_ = 0;           // index in kKinds of the kind of step being tried
  std::size_t steps_in_vain_ = 0;  // kinds tried since smallest_ last became smaller
  std::vector<Case> waiting_;      // cases of that kind, in reverse order
  std::optional<Case> trying_;
};

}  // namespace cp_pool::search
