// SIGUSR2 makes a rank write to stderr where it stands: the communication it waits in and the stack of its computing
// thread. The driver asks for it before it ends a pool that ran into a deadline.
#pragma once

namespace cp_pool {

// The calling thread is the one that is shown. Call once.
void install_stack_dump(int rank);

}  // namespace cp_pool
