// Checks puts (PeerWindows::put_all).
#pragma once

#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/windows.h"

namespace cp_pool {

// Throws std::invalid_argument, whose text begins with `where`, unless every put goes to one of `size` ranks and comes
// from one of the sources.
void check_puts(std::span<const PeerWindows::Put> puts, std::span<const at::Tensor> sources, int size,
                const std::string& where);

std::vector<PeerWindows::Put> puts_to(std::span<const PeerWindows::Put> puts, int peer);

// Describes the first put that does not fit into its window; empty if all fit.
std::string misfit(std::span<const PeerWindows::Put> puts, std::span<const at::Tensor> windows);

// Returns the blocks as copies into this rank's windows. All puts must fit.
std::vector<BlockCopy> blocks_of(std::span<const PeerWindows::Put> puts, std::span<const at::Tensor> windows);

}  // namespace cp_pool
