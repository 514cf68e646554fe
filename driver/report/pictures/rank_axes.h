// Axes of a mask that show which rank owns what, by a colour and a number for each stretch.
#pragma once

#include <string>
#include <vector>

#include <pugixml.hpp>

#include "driver/report/pictures/svg.h"

namespace cp_pool {

// Draws the axes above and left of the plot, kRankAxis units wide. `cell` is the length of a cell in units. `q_owners`
// holds the ranks that own each row of cells (owners_of, cases/diagnosis.h); `kv_owners` is the same for columns. Cells
// of several ranks are grey. Numbers that do not fit are left out; tooltips show all.
void append_rank_axes(pugi::xml_node svg, const SvgBox& plot, double cell,
                      const std::vector<std::vector<int>>& q_owners, const std::vector<std::vector<int>>& kv_owners);
inline constexpr double kRankAxis = 32;

// Returns the class of a rank's parts. There are eight colours, which repeat.
std::string rank_class(int rank);

}  // namespace cp_pool
