// A launcher starts the ranks of a pool, on this host or on others: mpirun, srun, torchrun, or what the user names.
// Here is which command line that is. It starts nothing and asks nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

enum class LauncherKind {
  local,     // none: the driver starts the ranks as its own processes
  torchrun,  // ranks of this host
  mpirun,
  srun,
  custom,  // a command line of the user's own
};

struct Launcher {
  LauncherKind kind = LauncherKind::local;
  std::vector<std::string> words = {};  // of a custom one, with placeholders
  bool operator==(const Launcher&) const = default;
};

// What to call it in messages: "mpirun", or the program of a custom one.
std::string name_of(const Launcher& launcher);

// The ranks of a pool that one host has. Ranks are numbered from host to host.
struct HostShare {
  std::string host;
  int ranks = 0;
  std::vector<int> slots = {};  // that they hold, counted on the host; empty: slots are not counted
  bool operator==(const HostShare&) const = default;
};

// One start of a pool.
struct Launch {
  int world_size = 1;
  std::vector<HostShare> hosts = {};  // empty: those that the launcher takes by itself
  std::string rendezvous = {};        // HOST:PORT
  std::vector<std::string> worker = {};
  std::vector<std::string> variables = {};  // names, of what ranks on other hosts must see too
  std::string name = {};                    // of the start, where the launcher can call it something
  bool as_root = false;                     // this process
};

// The command line of one start. The launcher is not local.
std::vector<std::string> launch_words(const Launcher& launcher, const Launch& launch);

// Why these words cannot be a custom launcher, for its user; empty: they can.
std::string wrong_with_template(const std::vector<std::string>& words);

// Variables by which launchers and the driver tell a rank who it is: one that starts others must not pass on its own.
const std::vector<std::string>& rank_variables();

}  // namespace cp_pool
