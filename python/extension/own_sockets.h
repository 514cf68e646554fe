// Knows which sockets of the process are cp-pool's own, so that the connections of the adapter's libraries can be shut
// down while these libraries wait for them.
#pragma once

#include <mutex>
#include <set>
#include <sys/types.h>

namespace cp_pool {

class OwnSockets {
 public:
  // Records every socket that is open now, except those recorded as others', as cp-pool's own. Call this when cp-pool's
  // connections exist and the adapter's do not yet.
  void remember_own();
  // Records every other socket that is open now as one of the adapter's libraries, permanently.
  void remember_others();
  // Shuts both directions of the connections of others, so that code that waits for them gets an error. Leaves
  // listening sockets alone, since Gloo ends the process if one fails. May be called from any thread.
  void shut_others();

 private:
  std::mutex mutex_;
  std::set<ino_t> own_;
  std::set<ino_t> others_;
};

}  // namespace cp_pool
