// A table of how the time of a run was spent: `cp-pool run --timings`.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

class TimingsTable {
 public:
  void add(const CaseFinished& event);  // cases that did not run are ignored

  // Returns a row for each world size and phase (min, p50, p95, max; "case" is the whole case as the driver measured
  // it), then the slowest 10 cases. Each line ends with a newline; the text is empty if no case ran.
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
