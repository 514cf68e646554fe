// A launcher starts the ranks of a pool, on this host or on others: mpirun, srun, torchrun, or a command of the user's.
// launcher.cpp builds its command line; allocation.cpp finds out which hosts it may use. Neither starts a process or
// reads the environment.
#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
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

// --- The hosts of a Slurm job or of a hostfile ---

// A variable has a value that cannot be parsed; what() names the variable and its value.
class AllocationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using VariableLookup = std::function<std::optional<std::string>(const char* name)>;

// Returns the hosts of the Slurm job that this process runs in, each with its number of slots in HostShare::ranks: GPUs
// for device cuda, else the tasks that were asked for, else CPUs. Empty if it runs in no job. Throws AllocationError.
std::vector<HostShare> slurm_allocation(const VariableLookup& lookup, const std::string& device);

// Returns the hosts of an Open MPI hostfile, which has lines such as "node1 slots=4". Throws std::invalid_argument.
std::vector<HostShare> hosts_of_hostfile(std::string_view text);

// Expands a Slurm list of hosts such as "n[1-3,07],gpu-a": returns the names in order. Throws std::invalid_argument.
std::vector<std::string> expand_hosts(std::string_view list);

// Expands Slurm's notation for one number a host: "2(x3),1" gives 2, 2, 2, 1. Throws std::invalid_argument.
std::vector<int> expand_counts(std::string_view list);

}  // namespace cp_pool
