// Draws the mask of a failing case as the diagnosis saw it (MaskPicture, cases/diagnosis.h).
#pragma once

#include <string>

#include <pugixml.hpp>

#include "cases/diagnosis.h"

namespace cp_pool {

// Appends a figure: cells that are correct, cells where keys are missing and cells with too many keys, with borders of
// sequences, owners along both axes, and a legend. The picture must be well formed
// (worker/protocol/diagnosis_intake.h). `id` is as SvgFrame::id.
void append_mask(pugi::xml_node parent, const MaskPicture& picture, const std::string& id);

}  // namespace cp_pool
