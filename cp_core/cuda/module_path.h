// Finds the modules that a program loads.
#pragma once

#include <string>

namespace cp_pool {

// Returns the path of the module: beside the running program, as in a build folder, or in ../lib/cp-pool, as in an
// installation. If it is in neither, returns its name, which the loader then looks up in the library path.
std::string module_path(const std::string& name);

}  // namespace cp_pool
