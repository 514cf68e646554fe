// A library cannot compute a tile, in whatever form it is asked for.
#pragma once

#include <stdexcept>

namespace cp_pool {

// The text is a sentence, which quotes the library if that refuses. Tiles differ from rank to rank, so one rank may
// throw this alone while the others enter a collective.
class BackendUnsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cp_pool
