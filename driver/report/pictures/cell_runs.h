// Turns rows of cells, one character each, into areas of a picture.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cp_pool {

struct CellRun {  // [begin, end)
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Returns the runs of consecutive cells that hold the character.
std::vector<CellRun> runs_in(const std::string& cells, char character);

// Returns path data around each such run in all rows; a cell is one unit.
std::string cells_data(const std::vector<std::string>& rows, char character);

}  // namespace cp_pool
