// Writes the stack of the calling thread in a form that a signal handler can produce: module and offset of each frame,
// and the modules' paths and build IDs, but no names. The driver resolves the frames into functions and lines
// (docs/protocol.md, "Stacks").
#pragma once

namespace cp_pool {

// Call once before write_raw_frames, outside of a signal handler.
void prepare_raw_frames();

// Writes the frames, the outermost first. Async-signal-safe as far as backtrace() and dl_iterate_phdr() are, which
// neither allocate nor wait for a thread that does. Only one thread may call it at a time. innermost: the address that
// a signal interrupted, so that the frames of its handler are left out; nullptr for every frame.
void write_raw_frames(int fd, const void* innermost) noexcept;

}  // namespace cp_pool
