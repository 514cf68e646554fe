// The one exception type of cases/: it reports an invalid matrix, case or filter.
#pragma once

#include <stdexcept>

namespace cp_pool {

// The text stands alone: it names the file, the place in it and the offending value, and says what was expected.
class CaseError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cp_pool
