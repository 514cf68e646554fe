// How a rank learns who it is: environment variables, set by the driver or by an external launcher.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/protocol/messages.h"

namespace cp_pool::protocol {

inline constexpr const char* kEnvRank = "RANK";
inline constexpr const char* kEnvWorldSize = "WORLD_SIZE";
inline constexpr const char* kEnvLocalRank = "LOCAL_RANK";
inline constexpr const char* kEnvLocalWorldSize = "LOCAL_WORLD_SIZE";
inline constexpr const char* kEnvMasterAddr = "MASTER_ADDR";
inline constexpr const char* kEnvMasterPort = "MASTER_PORT";
inline constexpr const char* kEnvProtocol = "CP_POOL_PROTOCOL";   // versions the driver speaks: min..max
inline constexpr const char* kEnvMasterFd = "CP_POOL_MASTER_FD";  // rank 0: inherited socket, listening on MASTER_PORT
inline constexpr const char* kEnvTag = "CP_POOL_TAG";        // names the pool; the driver finds its processes by it
inline constexpr const char* kEnvDevice = "CP_POOL_DEVICE";  // cpu | cuda
inline constexpr const char* kEnvShareGpus = "CP_POOL_SHARE_GPUS";  // on | off

struct VersionRange {
  int min = kVersion;
  int max = kVersion;
  bool operator==(const VersionRange&) const = default;
};

struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 0;  // ranks on this host; 0 in to_variables: all of them are
  std::string master_addr = "127.0.0.1";
  std::uint16_t master_port = 0;
  VersionRange protocol;
  std::optional<int> master_fd;
  std::string tag;
  std::string device = "cpu";
  bool share_gpus = true;  // ranks may share a GPU where there are fewer than ranks
  bool operator==(const RankEnvironment&) const = default;
};

// A variable that is missing, malformed or contradicts another; the text names it and its value.
class EnvironmentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using Lookup = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_variable(const char* name);  // the Lookup of this process

// Rank variables of the driver and torchrun (RANK, ..), else of Open MPI (OMPI_COMM_WORLD_RANK, ..), else of Slurm
// (SLURM_PROCID, ..). With Slurm MASTER_ADDR defaults to the launching node. Where CP_POOL_LIFELINE is set
// the master is left empty: ranks learn of it over the lifeline. Throws EnvironmentError.
RankEnvironment read_environment(const Lookup& lookup);
RankEnvironment read_environment();  // of this process

// What the driver adds to the environment of a rank.
std::vector<std::pair<std::string, std::string>> to_variables(const RankEnvironment& environment);

// The highest version that both speak.
std::optional<int> common_version(VersionRange ours, VersionRange theirs);

}  // namespace cp_pool::protocol
