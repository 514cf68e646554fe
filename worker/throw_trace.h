// Returns the stack of an exception's throw site to a handler far above it. throw_trace.cpp replaces __cxa_throw with a
// function that records raw return addresses; they are resolved only on request.
#pragma once

#include <string>
#include <vector>

namespace cp_pool {

// Returns the return addresses, innermost first, of the throw of the exception that the calling thread is handling.
// Empty if another thread threw the exception.
std::vector<void*> throw_site_of_current_exception();

// Returns one line per frame, with function, file and line as far as debug information goes. Takes tens of milliseconds
// or more.
std::string resolve_frames(const std::vector<void*>& addresses);

}  // namespace cp_pool
