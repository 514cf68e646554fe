// Keeps stray prints out of the protocol. stdout_guard.cpp moves the process's stdout to a private file descriptor and
// makes file descriptor 1 a copy of stderr. It does so before main and before the constructors of shared libraries.
#pragma once

namespace cp_pool {

// Returns the file descriptor of the stdout that the process was started with, close-on-exec; -1 if it had none.
int original_stdout();

}  // namespace cp_pool
