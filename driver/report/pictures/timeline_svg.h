// A run as a picture: lanes of pools with the cases that they ran.
#pragma once

#include <pugixml.hpp>

#include "driver/report/pictures/timeline.h"

namespace cp_pool {

// Appends a figure, in a box that scrolls on a narrow page. Cases and pools that are too short to be seen are drawn
// together with their neighbours, so the size of the picture is bounded. Appends nothing for a run without pools or
// whose events have no times.
void append_timeline(pugi::xml_node parent, const Timeline& timeline);

}  // namespace cp_pool
