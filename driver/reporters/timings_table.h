// A table of where the time of a run went: `cp-pool run --timings`.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

class TimingsTable {
 public:
  void add(const CaseFinished& event);  // cases that did not run are passed over

  // A row for each world size and phase (min, p50, p95, max; "case" is the whole case as the driver saw it), then the
  // slowest 10 cases. Lines, each ended by a newline; empty if no case ran.
  [[nodiscard]] std::string text() const;

 private:
  using Row = std::pair<int, std::string>;  // world size, phase
  struct RowOrder {
    bool operator()(const Row& a, const Row& b) const;
  };

  std::map<Row, std::vector<double>, RowOrder> phases_ms_;
  std::vector<std::pair<double, std::string>> cases_;  // milliseconds, ID
};

}  // namespace cp_pool
