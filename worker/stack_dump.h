// Signal handlers that write to stderr the phase that the rank is in, the communication that it waits in, and its
// stack.
#pragma once

namespace cp_pool {

// SIGUSR2 writes the stack of the thread that called this function, and the rank goes on: the driver sends it before it
// ends a pool that has exceeded a deadline. SIGSEGV, SIGABRT, SIGBUS, SIGFPE and SIGILL write the stack of the thread
// that they interrupt, and then kill the process as they would without a handler. Signals that already have a handler,
// such as a sanitizer's, keep it. The calling thread gets a separate stack for handlers, so that it can report a stack
// overflow. Call once.
void install_stack_dump(int rank);

// Sets a signal that a handler raises on its thread before it writes the stack. An interpreter's handler of that signal
// writes the stack of the interpreted program.
void show_also(int signal);

}  // namespace cp_pool
