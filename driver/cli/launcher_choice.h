// Reads the value of --launcher.
#pragma once

#include <string>

#include "driver/ranks/launcher.h"

namespace cp_pool {

// Returns why `text` cannot be a launcher, for the user; empty if it can.
std::string wrong_with_launcher(const std::string& text);
// `text` must have passed wrong_with_launcher.
Launcher parse_launcher(const std::string& text);

}  // namespace cp_pool
