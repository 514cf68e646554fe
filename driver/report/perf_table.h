// The step times of cases: `cp-pool run --mode perf`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/core/events.h"

namespace cp_pool {

// Returns "12.3 ms, 345 TFLOP/s, 67 GB/s, efficiency 0.89".
std::string perf_summary(const PerfFigures& figures);

class PerfTable {
 public:
  // `baseline` is the name of the run that the times are compared with.
  explicit PerfTable(std::optional<std::string> baseline = std::nullopt) : baseline_(std::move(baseline)) {}

  void add(const CaseFinished& event);  // cases without times are ignored

  // Returns a row for each case, in the order in which they finished. A row has the slowest rank's median, min and max
  // in ms, TFLOP/s and GB/s per rank, one rank's time and the efficiency; with a baseline also its time and the ratio
  // of the new time to it. Lines below say why efficiencies are missing, and compare the sums. Each line ends with a
  // newline; the text is empty if there are no times.
  [[nodiscard]] std::string text() const;

 private:
  struct Row {
    std::string id;
    PerfFigures figures;
    bool trains = true;
    bool shares = false;  // ranks shared a GPU
  };

  [[nodiscard]] std::string row_text(const Row& row) const;
  [[nodiscard]] std::string_view step_words() const;  // the passes that a step has
  [[nodiscard]] std::string reasons_text() const;
  [[nodiscard]] std::string sum_text() const;

  std::optional<std::string> baseline_;
  std::vector<Row> rows_;
};

}  // namespace cp_pool
