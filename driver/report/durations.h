// How long cases took, and which of them were the first use of a backend in a pool. First uses may take seconds longer
// than the cases after them: libraries build plans, compile kernels and load modules when they are first used. So
// medians leave them out.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/core/events.h"

namespace cp_pool {

// Returns the q-quantile (0 < q <= 1) by nearest rank. `values` must not be empty.
double quantile(std::vector<double> values, double q);

class FirstUses {
 public:
  // Whether the case is such a first use. To be called for each case that ran, in the order in which they ended.
  bool add(const CaseFinished& event) {
    return event.pool && seen_.emplace(to_string(*event.pool), event.backend).second;
  }

 private:
  std::set<std::pair<std::string, std::string>> seen_;  // pool, backend
};

// Times of several cases.
struct Durations {
  std::vector<double> all;
  std::vector<double> later;  // without first uses

  void add(double milliseconds, bool first_use) {
    all.push_back(milliseconds);
    if (!first_use) later.push_back(milliseconds);
  }
  // Of the later ones, if there are any.
  [[nodiscard]] double p50() const { return quantile(later.empty() ? all : later, 0.5); }
};

}  // namespace cp_pool
