// A table of how the time of a run was spent: `cp-pool run --timings`.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "driver/events.h"
#include "driver/reporters/durations.h"

namespace cp_pool {

class TimingsTable {
 public:
  void add(const CaseFinished& event);  // cases that did not run are ignored

  // Returns a row for each world size and phase (min, p50 without first uses, p95, max; "case" is the whole case as the
  // driver measured it), then the slowest 10 cases, in which first uses are marked. Each line ends with a newline; the
  // text is empty if no case ran.
  [[nodiscard]] std::string text() const;

 private:
  using Row = std::pair<int, std::string>;  // world size, phase
  struct RowOrder {
    bool operator()(const Row& a, const Row& b) const;
  };

  struct Timed {
    double ms = 0;
    std::string id;
    std::string first_use_of;  // the backend, if this was its first use in the pool
  };

  FirstUses first_uses_;
  std::map<Row, Durations, RowOrder> phases_ms_;
  std::vector<Timed> cases_;
};

}  // namespace cp_pool
