// The stack of the calling thread as a signal handler may write it: no names, only module and offset of each frame, and
// what identifies the modules. The driver turns it into functions and lines (docs/protocol.md, "Stacks").
#pragma once

namespace cp_pool {

// Call once before write_raw_frames, outside of a handler.
void prepare_raw_frames();

// Async-signal-safe as far as backtrace() and dl_iterate_phdr() are, which neither allocate nor wait for a thread that
// does. One thread at a time. The outermost frame comes first. innermost: the address at which a signal struck, so that
// the frames of its handler are left out; nullptr: every frame.
void write_raw_frames(int fd, const void* innermost) noexcept;

}  // namespace cp_pool
