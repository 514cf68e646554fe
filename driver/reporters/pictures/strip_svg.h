// Where tensors of a failing case were wrong (ErrorStrip, cases/diagnosis.h), drawn.
#pragma once

#include <string>
#include <vector>

#include <pugixml.hpp>

#include "cases/diagnosis.h"

namespace cp_pool {

// A figure with a row for each tensor and rank: error / bound over its rows, with the borders of chunks and sequences,
// and over its heads. All are of one logarithmic scale, with a line at the bound. A table has the worst cell of each.
// Strips are well formed (worker/protocol/diagnosis_intake.h). id: as SvgFrame::id.
void append_strips(pugi::xml_node parent, const std::vector<ErrorStrip>& strips, const std::string& id);

}  // namespace cp_pool
