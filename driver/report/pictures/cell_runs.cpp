#include "driver/report/pictures/cell_runs.h"

#include <algorithm>

#include <fmt/format.h>

namespace cp_pool {

std::vector<CellRun> runs_in(const std::string& cells, char character) {
  std::vector<CellRun> runs;
  for (std::size_t begin = cells.find(character); begin != std::string::npos;) {
    const std::size_t end = std::min(cells.find_first_not_of(character, begin), cells.size());
    runs.push_back({.begin = begin, .end = end});
    begin = cells.find(character, end);
  }
  return runs;
}

std::string cells_data(const std::vector<std::string>& rows, char character) {
  std::string data;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (const CellRun& run : runs_in(rows[row], character)) {
      data += fmt::format("M{} {}H{}V{}H{}z", run.begin, row, run.end, row + 1, run.begin);
    }
  }
  return data;
}

}  // namespace cp_pool
