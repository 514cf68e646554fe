// Finds what a pool left behind: descendants of the driver that a signal to the ranks' process groups does not reach
// (setsid, double fork). The driver is a child subreaper, so they stay its descendants when their parents die.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

struct ProcessInfo {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';  // of /proc/PID/stat
  std::int64_t threads = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot; with the pid it names a process for good

  // Only waits to be reaped. (The main thread of a living process can be a zombie too.)
  [[nodiscard]] bool dead() const { return state == 'X' || (state == 'Z' && threads <= 1); }
};

// Every process below root, parents before their children. Empty if /proc cannot be read.
std::vector<ProcessInfo> list_descendants(pid_t root);

// The processes of one pool: those with its tag in their environment, and what descends from them, even once the
// parent is gone or the environment was cleared.
class PoolProcesses {
 public:
  // tag: the value of CP_POOL_TAG in the environment of the pool's ranks.
  explicit PoolProcesses(std::string tag) : tag_(std::move(tag)) {}

  // A process that is one of them although its environment does not say so, as of a rank that was forked and not
  // executed. It must not have been reaped.
  void add(pid_t pid);

  // The living ones. Remembers them, so that their children are known later as well.
  std::vector<ProcessInfo> find();

  // Sends SIGKILL to the living ones; returns how many there were.
  std::size_t kill_all();

  // The living ones, for a report.
  std::vector<Leftover> describe();

 private:
  std::string tag_;
  std::map<pid_t, std::uint64_t> known_;  // pid -> start time
};

// Makes this process the one that its orphaned descendants are handed to; returns what it was before.
// Throws std::system_error.
bool set_child_subreaper(bool enabled);

// Takes away the zombies among this process's children, except those for which is_rank says true. Cheap if there is
// none: called after each case, so that orphans of a pool that lives long do not pile up.
void reap_adopted(const std::function<bool(pid_t)>& is_rank);

}  // namespace cp_pool
