// The communicators of CPU ranks. Every operation is made of sends and receives between pairs of ranks and sums in rank
// order, so results are bitwise the same on every run and every rank, for every dtype.
#pragma once

#include <string>

#include <c10/util/intrusive_ptr.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/gloo/gloo_mesh.h"

namespace c10d {
class Store;
}

namespace cp_pool {

// Collective: returns when all `size` ranks are connected. The groups of one rank share their connections: a deadline
// set on one holds for all, and one that fails, times out or is aborted takes the others with it, since no rank could
// tell any more where its peers stand. Keys in the store start with `prefix`; use a fresh one after an abort.
// Throws CommError.
CpGroups make_gloo_groups(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix, int rank, int size,
                          const GlooOptions& options = {});

}  // namespace cp_pool
