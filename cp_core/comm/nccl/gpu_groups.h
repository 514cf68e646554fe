// Makes the communicators of GPU ranks. Operations are enqueued on a stream of the communicator's own that waits for
// the caller's current stream; Work::wait makes the current stream wait for them. Neither waits for the device, so
// forward and backward can be captured in a CUDA graph (thread-local capture mode) once the ranks have been connected,
// which the first operation between two ranks does. Graphs must be destroyed before the communicators they use.
//
// The environment variable CP_POOL_DEBUG_STREAM_DELAYS=<seed>[:<most microseconds>] puts a pseudo-random delay before
// and after every operation on its stream, and between the parts of attention on theirs (cuda/delay.h). A wait that is
// left out then changes the result.
#pragma once

#include <chrono>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "cp_core/comm/communicator.h"

namespace c10d {
class Store;
}

namespace cp_pool {

// Collective, on this thread's current device: returns when all `size` ranks are connected. The groups of one rank
// share a deadline, and all of them fail when one fails, times out or is aborted. A failure ends the waits of this
// rank's host threads at once. The waits of its device and of its peers end when abort() is called on each rank.
// checked_barrier uses `store`, on the thread that calls it, to find out which rank is missing. Keys in the store start
// with `prefix`, which must be a fresh one after an abort. Throws CommError.
// shares: whether ranks share a GPU, on one host; the same on all ranks. Such ranks are connected by peer copies alone
// (peer_communicator.h). Otherwise each rank has a GPU of its own, and NCCL connects them.
CpGroups make_gpu_groups(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix, int rank, int size,
                         std::chrono::milliseconds connect_timeout, bool shares);

// A table of the CUDA part (cuda/cuda_part.h).
struct GpuGroups {
  decltype(&make_gpu_groups) make;
};

}  // namespace cp_pool
