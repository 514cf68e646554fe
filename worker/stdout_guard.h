// Keeps stray prints out of the protocol. Before main, and before the constructors of shared libraries,
// stdout_guard.cpp moves the process's stdout to a private descriptor and points fd 1 at stderr.
#pragma once

namespace cp_pool {

// The stdout that the process was started with, close-on-exec; -1 if it had none.
int original_stdout();

}  // namespace cp_pool
