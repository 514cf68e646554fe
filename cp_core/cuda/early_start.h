// What a GPU rank can begin while the CUDA part is still being loaded: the context of its device, and NCCL's connection
// of the ranks. All of it is a head start and no more: what does not work here is done, or fails with its reason, where
// it always was (CudaPart::use_device, NcclLink::connect).
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
  // Gives a connection to the store that nobody else uses; may wait, and throw.
  using Connect = std::function<c10::intrusive_ptr<c10d::Store>()>;

  // Begins on a thread of its own, which nobody waits for unless a function below says so: it may outlive this object,
  // and ends with the process.
  EarlyStart(Rank rank, Connect connect);

  // Waits until no more libraries are loaded here. Loading has one lock in a process: who loads the CUDA part before
  // this returns makes the context wait for it.
  void await_libraries() const;

  // Waits, at most until Rank::limit, until NCCL connects the ranks, and gives its ncclComm_t, to the first caller
  // alone, who owns it; null if there is none.
  [[nodiscard]] void* take_communicator() const;

  // Milliseconds of what has been done so far: early_load, early_context, early_store, early_nccl_id, early_nccl_call.
  [[nodiscard]] std::map<std::string, double> times_ms() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// The store's key of NCCL's unique id (128 bytes) for the communicators of this prefix.
std::string nccl_id_key(const std::string& prefix);

}  // namespace cp_pool
