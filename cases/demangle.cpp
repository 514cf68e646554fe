#include "cases/demangle.h"

#include <cstdlib>
#include <cxxabi.h>
#include <memory>

namespace cp_pool {

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name{abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                         &std::free};
  return status == 0 ? name.get() : symbol;
}

}  // namespace cp_pool
