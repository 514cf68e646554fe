// A launcher starts the ranks of a pool, on this host or on others: mpirun, srun, torchrun, or a command of the user's.
// This file builds its command line. It starts no process and reads no environment.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cases/enum_names.h"

namespace cp_pool {

enum class LauncherKind {
  local,     // no launcher: the driver starts the ranks as its own processes
  torchrun,  // on this host only
  mpirun,
  srun,
  custom,  // a command line of the user's own
};
// A custom launcher has no name of its own: it is called by its program.
template <>
inline constexpr std::array<std::pair<LauncherKind, std::string_view>, 4> kNames<LauncherKind>{
    {{LauncherKind::local, "local"},
     {LauncherKind::torchrun, "torchrun"},
     {LauncherKind::mpirun, "mpirun"},
     {LauncherKind::srun, "srun"}}};

struct Launcher {
  LauncherKind kind = LauncherKind::local;
  std::vector<std::string> words = {};  // command line of a custom launcher, with placeholders
  bool operator==(const Launcher&) const = default;
};

// Returns its name in messages: "mpirun" and the like, or the program of a custom launcher.
std::string name_of(const Launcher& launcher);

// The share that one host has of a pool's ranks. Ranks are numbered from host to host.
struct HostShare {
  std::string host;
  int ranks = 0;
  std::vector<int> slots = {};  // slots that they hold, numbered from 0 on the host; empty: slots are not counted
  bool operator==(const HostShare&) const = default;
};

// The parameters of one start of a pool.
struct Launch {
  int world_size = 1;
  std::vector<HostShare> hosts = {};  // empty: the launcher chooses the hosts
  std::string rendezvous = {};        // HOST:PORT of rank 0
  std::vector<std::string> worker = {};
  std::vector<std::string> variables = {};  // names of environment variables that ranks on other hosts must get
  std::string name = {};                    // name of this start, for launchers that can name their job
  bool as_root = false;                     // this process runs as root
};

// Returns the command line of one start.
std::vector<std::string> launch_words(const Launcher& launcher, const Launch& launch);

// Returns why these words cannot be a custom launcher, as a message for the user; empty if they can.
std::string wrong_with_template(const std::vector<std::string>& words);

// Environment variables by which launchers and the driver tell a rank its place. A process that starts other ranks must
// not pass them on.
const std::vector<std::string>& rank_variables();

}  // namespace cp_pool
