// Where the modules are that a program loads.
#pragma once

#include <string>

namespace cp_pool {

// The module beside the running program; if it is not there its name alone, for the library path.
std::string module_path(const std::string& name);

}  // namespace cp_pool
