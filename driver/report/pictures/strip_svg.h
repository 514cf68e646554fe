// Draws where tensors of a failing case were wrong (ErrorStrip, cases/diagnosis.h).
#pragma once

#include <string>
#include <vector>

#include <pugixml.hpp>

#include "cases/diagnosis.h"

namespace cp_pool {

// Appends a figure with a row for each tensor and rank: error / bound over its rows, with the borders of chunks and
// sequences, and over its heads. All share one logarithmic scale, with a line at the bound. A table below has the worst
// cell of each. The strips must be well formed (worker/protocol/diagnosis_intake.h). `id` is as SvgFrame::id.
void append_strips(pugi::xml_node parent, const std::vector<ErrorStrip>& strips, const std::string& id);

}  // namespace cp_pool
