// Demangles C++ names.
#pragma once

#include <string>

namespace cp_pool {

// Turns "_ZN3foo3barEv" into "foo::bar()" and "N3foo3barE" into "foo::bar". A text that is no mangled name is returned
// unchanged.
std::string demangled(const char* symbol);

}  // namespace cp_pool
