// The mask of a sequence as `cp-pool explain` draws it (driver/case_drawing.h), as a picture.
#pragma once

#include <string>

#include <pugixml.hpp>

#include "driver/case_drawing.h"

namespace cp_pool {

// A figure: the mask in the colours of the ranks that own the queries, with their numbers along both axes, and lines
// where tiles meet. tiles: along a side, of equal lengths. id: as SvgFrame::id. Nothing for a sequence without blocks.
void append_case_mask(pugi::xml_node parent, const CaseDrawing& drawing, int tiles, const std::string& caption,
                      const std::string& id);

}  // namespace cp_pool
