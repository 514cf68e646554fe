// A table of how the time of a run was spent: `cp-pool run --timings`.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/core/events.h"
#include "driver/report/durations.h"

namespace cp_pool {

// Returns a number that is smaller for an earlier phase of a case. Phases that are not those of attention, such as
// `call`, come before the barrier that closes the case.
std::size_t place_of_phase(std::string_view phase);

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
