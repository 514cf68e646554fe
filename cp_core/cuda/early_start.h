// A head start of a GPU rank while the CUDA part is still being loaded: it creates the device's context and lets NCCL
// connect the ranks. It may fail: cuda::use_device and NcclLink::connect then do the work, or report the error.
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
    std::string prefix;                       // of the store's keys: that of the first communicators
    bool connects = true;                     // over NCCL; else the context alone is made
    std::chrono::milliseconds limit{30'000};  // for the other ranks' part
  };
  // Returns a connection to the store that nobody else uses. It may wait, and throw.
  using Connect = std::function<c10::intrusive_ptr<c10d::Store>()>;

  // Begins on a thread of its own. Only the functions below wait for it; it may outlive this object, and ends with the
  // process.
  EarlyStart(Rank rank, Connect connect);

  // Waits until this thread loads no more libraries. A process has one lock for loading: if the CUDA part is loaded
  // before this returns, the context waits for it.
  void await_libraries() const;

  // Waits, at most for Rank::limit, until NCCL connects the ranks. Returns its ncclComm_t, which the caller owns; null
  // if there is none, and to every caller but the first.
  [[nodiscard]] void* take_communicator() const;

  // Milliseconds of each part that has been done so far: early_load, early_context, early_store, early_nccl_id,
  // early_nccl_call.
  [[nodiscard]] std::map<std::string, double> times_ms() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// The store's key of NCCL's unique id (128 bytes) for the communicators of this prefix.
std::string nccl_id_key(const std::string& prefix);

}  // namespace cp_pool
