// Finds the modules that the running program, or a library that has cp_core, loads.
#pragma once

#include <string>

namespace cp_pool {

// The library that this code is in, if it is none of the program's own: the extension of an interpreter. Empty: it is
// the program's.
std::string own_library();

// Returns the path of the module: beside the program or library that this code is in, as in a build folder; or in
// ../lib/cp-pool, as in an installation; or in lib/cp-pool, as in a Python package. If it is in none of them, returns
// its name, which the loader then looks up in the library path.
std::string module_path(const std::string& name);

}  // namespace cp_pool
