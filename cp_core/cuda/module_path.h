// Finds the modules that the running program, or a library that contains cp_core, loads.
#pragma once

#include <string>

namespace cp_pool {

// Returns the path of the shared library that contains this code, such as the extension of an interpreter. Empty if
// this code is part of the program itself.
std::string own_library();

// Returns the path of the module. It is looked for in three folders, relative to the program or library that contains
// this code: beside it, as in a build folder; in ../lib/cp-pool, as in an installation; in lib/cp-pool, as in a Python
// package. If it is in none of them, returns its name, which the loader then looks up in the library path.
std::string module_path(const std::string& name);

}  // namespace cp_pool
