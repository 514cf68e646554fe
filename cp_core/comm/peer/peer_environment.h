#pragma once

#include <string>

namespace cp_pool {

// Returns why the environment variables of this process forbid peer copies (peer_link.h), as a sentence; empty if they
// allow them.
//   CP_POOL_PEER_COPIES=off
//   NCCL_P2P_DISABLE, as NCCL reads it: set where GPUs cannot be trusted to write to each other's memory. Ranks that
//   share a GPU (shares) take no notice of it: NCCL has no part in them
std::string peer_copies_forbidden(bool shares = false);

}  // namespace cp_pool
