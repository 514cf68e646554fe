// File descriptors that the worker moves out of the way of stdin, stdout and stderr.
#pragma once

namespace cp_pool {

// The lowest number of a copy of a standard descriptor (F_DUPFD_CLOEXEC): the first behind 0, 1 and 2, which a process
// may have been started without.
inline constexpr int kFirstPrivateFd = 3;

}  // namespace cp_pool
