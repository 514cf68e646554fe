// Names of C++ as the compiler mangles them.
#pragma once

#include <string>

namespace cp_pool {

// "_ZN3foo3barEv" and "N3foo3barE" -> "foo::bar()" and "foo::bar"; what is no such name stays as it is.
std::string demangled(const char* symbol);

}  // namespace cp_pool
