// Where the modules are that a program loads.
#pragma once

#include <string>

namespace cp_pool {

// The module beside the running program, as in a build folder, or in ../lib/cp-pool, as in an installation; if it is in
// neither its name alone, for the library path.
std::string module_path(const std::string& name);

}  // namespace cp_pool
