// Errors of files that a case writes beside its answer (a dump, a trace). They have a type of their own because they
// say nothing about the answer.
#pragma once

#include <stdexcept>

namespace cp_pool {

// A file cannot be written; what() is one line that names the path and the cause.
class FileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cp_pool
