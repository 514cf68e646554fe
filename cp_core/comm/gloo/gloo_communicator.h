// The communicators of CPU ranks. Every operation consists of sends and receives between pairs of ranks, and sums are
// added in rank order, so results have the same bits on every run and every rank, for every dtype.
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
// set on one holds for all, and when one fails, times out or is aborted, all of them fail, since no rank would know any
// more which operation its peers are in. Keys in the store start with `prefix`, which must be a fresh one after an
// abort. Throws CommError.
CpGroups make_gloo_groups(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix, int rank, int size,
                          const GlooOptions& options = {});

}  // namespace cp_pool
