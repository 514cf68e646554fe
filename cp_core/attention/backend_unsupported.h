// The error of a library that can compute a tile in none of the forms that a backend offers it.
#pragma once

#include <stdexcept>

namespace cp_pool {

// what() is a sentence, which quotes the library if the library refused. Tiles differ from rank to rank, so one rank
// may throw this alone while the others enter a collective.
class BackendUnsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cp_pool
