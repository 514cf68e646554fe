// A run as a picture: lanes of pools with the cases that they ran.
#pragma once

#include <pugixml.hpp>

#include "driver/reporters/pictures/timeline.h"

namespace cp_pool {

// A figure, in a box that scrolls where the page is narrow. Cases and pools that are too short to be seen alone are
// drawn as one with those beside them, so the picture stays small however many there are. Nothing for a run without
// pools, or whose events do not say when they were.
void append_timeline(pugi::xml_node parent, const Timeline& timeline);

}  // namespace cp_pool
