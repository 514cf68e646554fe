// Signal handlers that write to stderr the phase that the rank is in, the communication that it waits in, and its
// stack.
#pragma once

namespace cp_pool {

// SIGUSR2 shows the calling thread, and the rank goes on: the driver asks for it before it ends a pool that ran into a
// deadline. SIGSEGV, SIGABRT, SIGBUS, SIGFPE and SIGILL show the thread that they strike, and then kill the process as
// they would have anyway; one that has a handler already, a sanitizer's, is left to it. The calling thread gets a stack
// of its own for handlers, so that it can tell of a stack overflow. Call once.
void install_stack_dump(int rank);

// Before a thread writes its stack, its handler raises this signal on it: that of an interpreter's handler, which
// writes the stack of the program that it interprets.
void show_also(int signal);

}  // namespace cp_pool
