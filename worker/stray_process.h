// Processes that a rank leaves behind, out of reach of signals to its process group: for --inject.
#pragma once

namespace cp_pool {

// A child in a session of its own that ignores polite signals and holds the rank's descriptors open.
void leave_setsid_child();

// A grandchild in a session of its own whose parent is gone and which has closed its standard streams, as daemons do.
void leave_daemon();

}  // namespace cp_pool
