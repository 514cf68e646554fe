// Axes of a mask that say which rank owns what: a colour and a number for each stretch.
#pragma once

#include <string>
#include <vector>

#include <pugixml.hpp>

#include "driver/reporters/pictures/svg.h"

namespace cp_pool {

// Draws the axes above and left of the plot, kRankAxis units wide. cell: how long a cell is, in units. q_ranks: of each
// row of cells the rank that owns it, -1: nobody does; kv_ranks: of each column. Numbers that do not fit are left out;
// the pointer finds all.
void append_rank_axes(pugi::xml_node svg, const SvgBox& plot, double cell, const std::vector<int>& q_ranks,
                      const std::vector<int>& kv_ranks);
inline constexpr double kRankAxis = 32;

// The class of what belongs to a rank: eight colours, again and again.
std::string rank_class(int rank);

}  // namespace cp_pool
