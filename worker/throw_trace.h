// The stack of the throw site of an exception that was caught far above it. throw_trace.cpp replaces
// __cxa_throw, which records raw return addresses; they are resolved only when asked for.
#pragma once

#include <string>
#include <vector>

namespace cp_pool {

// Return addresses, innermost first, of the throw of the exception that the calling thread is handling. Empty if this
// thread did not throw it (an exception carried over from another thread).
std::vector<void*> throw_site_of_current_exception();

// One line a frame, with function, file and line as far as debug information goes. Slow: tens of milliseconds and more.
std::string resolve_frames(const std::vector<void*>& addresses);

}  // namespace cp_pool
