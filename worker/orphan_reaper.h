// The reaper: a process beside a rank that a launcher started. When the rank ends, the reaper kills the processes that
// the rank has left on its host, such as a child in a session of its own or a daemon. The driver does this on its own
// host, for processes below itself; on other hosts nobody else would.
#pragma once

namespace cp_pool {

// Starts the reaper; call it before the rank has threads. The reaper holds none of the rank's file descriptors. When
// the rank ends, it kills every process whose environment has this process's CP_POOL_TAG and rank, and ends within
// milliseconds. If the reaper cannot be started, the rank runs without one.
void start_orphan_reaper();

}  // namespace cp_pool
