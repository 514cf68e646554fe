// Finds processes that a pool left behind: descendants of the driver that a signal to the ranks' process groups does
// not reach (setsid, double fork). As the driver is a child subreaper, they stay its descendants when their parents
// die.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

#include "driver/core/events.h"

namespace cp_pool {

struct ProcessInfo {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';  // of /proc/PID/stat
  std::int64_t threads = 0;
  std::uint64_t start_time = 0;  // in clock ticks since boot; with the pid it identifies a process uniquely

  // Whether it only waits to be reaped. (The main thread of a living process can be a zombie, too.)
  [[nodiscard]] bool dead() const { return state == 'X' || (state == 'Z' && threads <= 1); }
};

// Returns all descendants of `root`, parents before their children. Empty if /proc cannot be read.
std::vector<ProcessInfo> list_descendants(pid_t root);

// The processes of one pool: those with its tag in their environment, and their descendants, even if a parent is gone
// or the environment was cleared.
class PoolProcesses {
 public:
  // tag: the value of CP_POOL_TAG in the environment of the pool's ranks.
  explicit PoolProcesses(std::string tag) : tag_(std::move(tag)) {}

  // Adds a process whose environment lacks the tag, such as a rank that was forked without exec. It must not have been
  // reaped.
  void add(pid_t pid);

  // Returns the living processes, and remembers them so that their children are recognised later.
  std::vector<ProcessInfo> find();

  // Sends SIGKILL to the living processes. Returns how many there were.
  std::size_t kill_all();

  // Describes the living processes for a report.
  std::vector<Leftover> describe();

 private:
  std::string tag_;
  std::map<pid_t, std::uint64_t> known_;  // pid -> start time
};

// Reaps the zombies among this process's children, except those for which is_rank returns true. Cheap if there are
// none. It is called after each case, so that orphans of a long-lived pool do not accumulate.
void reap_adopted(const std::function<bool(pid_t)>& is_rank);

}  // namespace cp_pool
