// Rows of cells, a character each, as areas of a picture.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cp_pool {

struct CellRun {  // [begin, end)
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Where the character stands, once or several times running.
std::vector<CellRun> runs_in(const std::string& cells, char character);

// A path around each such run in all rows, a unit a cell.
std::string cells_data(const std::vector<std::string>& rows, char character);

}  // namespace cp_pool
