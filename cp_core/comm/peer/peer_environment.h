#pragma once

#include <string>

namespace cp_pool {

// Returns why the environment variables of this process forbid peer copies (peer_link.h); empty if they allow them.
//   CP_POOL_PEER_COPIES=off
//   NCCL_P2P_DISABLE, with NCCL's meaning: set where GPUs cannot be trusted to write to each other's memory. It is
//   ignored where ranks share a GPU (shares), since they do not use NCCL
std::string peer_copies_forbidden(bool shares = false);

}  // namespace cp_pool
