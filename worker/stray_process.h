// Leaves processes behind that signals to the rank's process group do not reach, for --inject.
#pragma once

namespace cp_pool {

// Leaves a child in a session of its own that ignores SIGTERM, SIGHUP, SIGINT and SIGUSR2 and holds the rank's file
// descriptors open.
void leave_setsid_child();

// Leaves a grandchild in a session of its own, without a parent and with closed standard streams, as daemons have.
void leave_daemon();

}  // namespace cp_pool
