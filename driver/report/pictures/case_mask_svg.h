// The mask of a sequence as `cp-pool explain` draws it (driver/core/case_drawing.h), as a picture.
#pragma once

#include <string>

#include <pugixml.hpp>

#include "driver/core/case_drawing.h"

namespace cp_pool {

// Appends a figure: the mask in the colours of the ranks that own the queries, with rank numbers along both axes, and
// lines where tiles meet. `tiles` is the number of tiles along a side, all of equal length. `id` is as SvgFrame::id.
// Appends nothing for a sequence without blocks.
void append_case_mask(pugi::xml_node parent, const CaseDrawing& drawing, int tiles, const std::string& caption,
                      const std::string& id);

}  // namespace cp_pool
