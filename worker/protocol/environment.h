// How a rank learns its number and its group: from environment variables that the driver or another launcher sets. And
// the secret of a pool, by which its ranks are told from other processes that can reach a port.
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
inline constexpr const char* kEnvProtocol = "CP_POOL_PROTOCOL";   // versions that the driver speaks: min..max
inline constexpr const char* kEnvMasterFd = "CP_POOL_MASTER_FD";  // rank 0: inherited listening socket of MASTER_PORT
inline constexpr const char* kEnvTag = "CP_POOL_TAG";        // the pool's tag, by which the driver finds its processes
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
  int local_world_size = 0;  // ranks on this host; 0 in to_variables means that all are
  bool on_one_host = false;  // all ranks are known to be on this host
  std::string master_addr = "127.0.0.1";
  std::uint16_t master_port = 0;
  VersionRange protocol;
  std::optional<int> master_fd;
  std::string tag;
  std::string token;  // the pool's secret, which a rank shows to rank 0; empty: rank 0 makes one
  std::string device = "cpu";
  bool share_gpus = true;  // ranks may share a GPU if there are fewer GPUs than ranks
  bool operator==(const RankEnvironment&) const = default;
};

// Reports a variable that is missing, malformed or contradicts another; the text names the variable and its value.
class EnvironmentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using Lookup = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_variable(const char* name);  // the Lookup of this process

// Reads the rank variables of the driver and torchrun (RANK, ..); if they are not set, those of Open MPI
// (OMPI_COMM_WORLD_RANK, ..), else those of Slurm (SLURM_PROCID, ..). If MASTER_ADDR is not set, Slurm's launching node
// is used. If CP_POOL_LIFELINE is set, the master stays empty: ranks learn of it over the lifeline. Throws
// EnvironmentError.
RankEnvironment read_environment(const Lookup& lookup);
RankEnvironment read_environment();  // reads the environment of this process

// Returns the variables that the driver adds to the environment of a rank.
std::vector<std::pair<std::string, std::string>> to_variables(const RankEnvironment& environment);

// Returns the highest version that both sides speak; nullopt if there is none.
std::optional<int> common_version(VersionRange ours, VersionRange theirs);

// Returns 128 random bits of the kernel as 32 hexadecimal digits.
std::string random_token();

// Compares in a time that does not depend on where the texts differ.
bool is_same_secret(std::string_view said, std::string_view secret);

}  // namespace cp_pool::protocol
