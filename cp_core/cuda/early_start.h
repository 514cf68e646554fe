// A head start of a GPU rank: while the CUDA part is still being loaded, creates the device's context and lets NCCL
// connect the ranks. If this fails, cuda::use_device and NcclLink::connect do the work or report the error.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Store;
}

namespace cp_pool {

class EarlyStart {
 public:
  struct Rank {
    int device = 0;
    int rank = 0;
    int size = 1;
    std::string prefix;                       // the prefix of the store's keys for the first communicators
    bool connects = true;                     // whether NCCL connects the ranks; else only the context is created
    std::chrono::milliseconds limit{30'000};  // how long to wait for the other ranks
  };
  // Returns a connection to the store that nobody else uses. It may wait, and throw.
  using Connect = std::function<c10::intrusive_ptr<c10d::Store>()>;

  // Starts the work on a thread of its own. Only the functions below wait for that thread. It may outlive this object,
  // and ends with the process at the latest.
  EarlyStart(Rank rank, Connect connect);

  // Waits until the started thread has loaded its libraries. A process has one lock for loading libraries, so if the
  // CUDA part were loaded before, the context would have to wait for it.
  void await_libraries() const;

  // Waits, at most for Rank::limit, until NCCL has begun to connect the ranks. Returns its ncclComm_t, which the caller
  // then owns; null if there is none, and for every call but the first.
  [[nodiscard]] void* take_communicator() const;

  // Returns the milliseconds of each part that is done so far: early_load, early_context, early_store, early_nccl_id,
  // early_nccl_call.
  [[nodiscard]] std::map<std::string, double> times_ms() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// The key under which the store has NCCL's unique id (128 bytes) for the communicators of this prefix.
std::string nccl_id_key(const std::string& prefix);

}  // namespace cp_pool
