// Demangles C++ names.
#pragma once

#include <cstdlib>
#include <cxxabi.h>
#include <memory>
#include <string>

namespace cp_pool {

// Turns "_ZN3foo3barEv" into "foo::bar()" and "N3foo3barE" into "foo::bar". A text that is no mangled name is returned
// unchanged.
inline std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name{abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                         &std::free};
  return status == 0 ? name.get() : symbol;
}

}  // namespace cp_pool
