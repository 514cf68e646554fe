// A process beside a rank that a launcher started, which ends what the rank leaves on its host: a child in a session of
// its own, or a daemon. cp-pool finds such processes on its own host, below itself; here nobody else would.
#pragma once

namespace cp_pool {

// Starts it, before the rank has threads. It holds nothing of the rank's, and outlives it by milliseconds: then every
// process is killed that has this process's CP_POOL_TAG and rank in its environment. A failure is none of the rank's:
// then there is no keeper.
void start_keeper();

}  // namespace cp_pool
