// Makes the communicators of GPU ranks. Their operations are enqueued on a stream of the communicator's own that waits
// for the caller's current stream; Work::wait makes the current stream wait for them. Neither waits for the device, so
// forward and backward can be captured in a CUDA graph (thread-local capture mode), once the ranks have been connected:
// the first operation between two ranks does that. Graphs must be destroyed before the communicators they use.
//
// With the environment variable CP_POOL_DEBUG_STREAM_DELAYS=<seed>[:<most microseconds>] every operation has a
// pseudo-random delay before it and after it on its stream, as have the parts of attention on theirs (cuda/delay.h), so
// that a wait that is left out shows.
#pragma once

#include <chrono>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "cp_core/comm/communicator.h"

namespace c10d {
class Store;
}

namespace cp_pool {

struct GpuGroupOptions {
  // Ranks share a GPU, on one host: they are connected by peer copies alone (peer_communicator.h). Else each has a GPU
  // of its own, and NCCL connects them. The same on all ranks.
  bool shares = false;
  // As in NcclLink::connect, an ncclComm_t; null where ranks share.
  void* started = nullptr;
};

// Collective, on this thread's current device: returns when all `size` ranks are connected. The groups of one rank
// share a deadline, and fall together when one fails, times out or is aborted. A failure ends the waits of this rank at
// once; what its peers and its own device still wait for ends with abort() on each of them. checked_barrier uses
// `store`, on the thread that calls it, to tell who is missing. Keys in the store start with `prefix`; use a fresh one
// after an abort. Throws CommError.
CpGroups make_gpu_groups(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix, int rank, int size,
                         std::chrono::milliseconds connect_timeout, const GpuGroupOptions& options = {});

// A table of the CUDA part (cuda/cuda_part.h).
struct GpuGroups {
  decltype(&make_gpu_groups) make;
};

}  // namespace cp_pool
