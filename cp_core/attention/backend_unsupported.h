// A library cannot compute what was asked for, and there is no other way to ask.
#pragma once

#include <stdexcept>

namespace cp_pool {

// The text is a sentence that quotes the library where it is the library that refuses. Tiles differ from rank to rank:
// one rank may meet it alone, while others are on their way into a collective.
class BackendUnsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cp_pool
