// The environment of a rank in tests that serve the control plane in their own process.
#pragma once

#include "worker/protocol/environment.h"
#include "worker/tcp.h"

namespace cp_pool::test {

// Returns an environment with a listening socket, as the driver hands one down.
inline protocol::RankEnvironment listening_environment(int world_size) {
  protocol::RankEnvironment out;
  out.world_size = out.local_world_size = world_size;
  out.master_fd = listen_at("127.0.0.1", 0, true);
  out.master_port = port_of(*out.master_fd);
  return out;
}

}  // namespace cp_pool::test
