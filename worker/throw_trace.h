// Returns the stack of an exception's throw site to a handler far above it. throw_trace.cpp replaces __cxa_throw with a
// function that records raw return addresses; rank_outcome.cpp resolves them.
#pragma once

#include <vector>

namespace cp_pool {

// Returns the return addresses, innermost first, of the throw of the exception that the calling thread is handling.
// Empty if another thread threw the exception.
std::vector<void*> throw_site_of_current_exception();

}  // namespace cp_pool
