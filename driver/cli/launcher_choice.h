// --launcher, as it is given.
#pragma once

#include <string>

#include "driver/launcher/launcher.h"

namespace cp_pool {

// Why this cannot be a launcher, for its user; empty: it can.
std::string wrong_with_launcher(const std::string& text);
// text: right.
Launcher parse_launcher(const std::string& text);

}  // namespace cp_pool
