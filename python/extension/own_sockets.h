// Which connections of the process are cp-pool's own, so that those of the adapter's libraries can be closed under
// them.
#pragma once

#include <mutex>
#include <set>
#include <sys/types.h>

namespace cp_pool {

class OwnSockets {
 public:
  // Every socket that is open now is our own, but for those that were seen to be others'. Call when our connections
  // are made and the adapter's are not.
  void remember_own();
  // Every other socket that is open now belongs to the adapter's libraries, for good.
  void remember_others();
  // Ends both directions of the connections of others, so that whoever waits for them gets an error. Listening sockets
  // are left alone: Gloo ends the process if one fails. From any thread.
  void shut_others();

 private:
  std::mutex mutex_;
  std::set<ino_t> own_;
  std::set<ino_t> others_;
};

}  // namespace cp_pool
