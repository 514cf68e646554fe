// How fast the cases were: `cp-pool run --mode perf`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

// "12.3 ms, 345 TFLOP/s, 67 GB/s, efficiency 0.89".
std::string perf_summary(const PerfFigures& figures);

class PerfTable {
 public:
  // baseline: the name of what the times are compared with.
  explicit PerfTable(std::optional<std::string> baseline = std::nullopt) : baseline_(std::move(baseline)) {}

  void add(const CaseFinished& event);  // cases without times are passed over

  // A row for each case, in the order in which they finished: the slowest rank's median, min and max, TFLOP/s and GB/s
  // of a rank, one rank's time, efficiency; with a baseline its time and what is it of this one's. Then why an
  // efficiency is missing, and the comparison in sum. Lines, each ended by a newline; empty if there are no times.
  [[nodiscard]] std::string text() const;

 private:
  struct Row {
    std::string id;
    PerfFigures figures;
    bool trains = true;
    bool shares = false;  // ranks shared a GPU
  };

  [[nodiscard]] std::string row_text(const Row& row) const;
  [[nodiscard]] std::string_view step_words() const;  // what a step is
  [[nodiscard]] std::string reasons_text() const;
  [[nodiscard]] std::string sum_text() const;

  std::optional<std::string> baseline_;
  std::vector<Row> rows_;
};

}  // namespace cp_pool
