// The mask of a failing case as it was seen (MaskPicture, cases/diagnosis.h), drawn.
#pragma once

#include <string>

#include <pugixml.hpp>

#include "cases/diagnosis.h"

namespace cp_pool {

// A figure: cells that are as they should be, and those where keys are missing or too many, with borders of sequences,
// owners along both axes, and a legend. The picture is well formed (worker/protocol/diagnosis_intake.h). id: as
// SvgFrame::id.
void append_mask(pugi::xml_node parent, const MaskPicture& picture, const std::string& id);

}  // namespace cp_pool
