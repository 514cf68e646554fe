// A launcher starts the ranks of a pool, on this host or on others: mpirun, srun, torchrun, or a command of the user's.
// This file builds its command line. It starts no process and reads no environment.
#pragma once

#include <string>
#include <vector>

#include "driver/core/run.h"

namespace cp_pool {

// Returns its name in messages: "mpirun" and the like, or the program of a custom launcher.
std::string name_of(const Launcher& launcher);

// The parameters of one start of a pool.
struct LaunchPlan {
  int world_size = 1;
  std::vector<HostShare> hosts = {};  // empty: the launcher chooses the hosts
  std::string rendezvous = {};        // HOST:PORT of rank 0
  std::vector<std::string> worker = {};
  std::vector<std::string> variables = {};  // names of environment variables that ranks on other hosts must get
  std::string name = {};                    // name of this start, for launchers that can name their job
  bool as_root = false;                     // this process runs as root
};

// Returns the command line of one start.
std::vector<std::string> launch_words(const Launcher& launcher, const LaunchPlan& launch);

// Returns why these words cannot be a custom launcher, as a message for the user; empty if they can.
std::string template_error(const std::vector<std::string>& words);

// Environment variables by which launchers and the driver tell a rank its place. A process that starts other ranks must
// not pass them on.
const std::vector<std::string>& rank_variables();

// Returns the number of slots of each host, in order.
std::vector<int> slots_of(const std::vector<HostShare>& hosts);

// Returns the hosts of a pool that holds these slots, each with its number of ranks. Slots are numbered from host to
// host. Without slots, and if all hosts together have fewer slots than there are ranks, the hosts are filled in order
// and the remaining ranks are spread evenly over them.
std::vector<HostShare> place(int ranks, const std::vector<int>& slots, const std::vector<HostShare>& hosts);

// Returns the worker's command line with a shell script in front that sets CUDA_VISIBLE_DEVICES from the host's slots:
// slot k is the k-th GPU that is visible on the host. A host finds itself in `hosts` by SLURMD_NODENAME, its name or
// one of its addresses; on a host that is not listed the script fails without starting the worker. Returns `worker`
// unchanged if there are no hosts or no slots.
std::vector<std::string> restrict_gpus(const std::vector<HostShare>& hosts, std::vector<std::string> worker);

}  // namespace cp_pool
