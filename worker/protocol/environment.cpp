#include "worker/protocol/environment.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "cases/parse_number.h"
#include "worker/protocol/lifeline_messages.h"

namespace cp_pool::protocol {

namespace {

struct RankVariables {
  const char* launcher;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
  const char* nodes = nullptr;  // number of hosts of the ranks
};

// The order matters: mpirun inside a Slurm job sets the variables of both.
constexpr RankVariables kLaunchers[] = {
    {"the driver or torchrun", kEnvRank, kEnvWorldSize, kEnvLocalRank, kEnvLocalWorldSize},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_STEP_NUM_NODES"},
};

int parse_int(std::string_view name, std::string_view text, int min, int max) {
  const auto value = parse_number<int>(text);
  if (value && *value >= min && *value <= max) return *value;
  throw EnvironmentError(fmt::format("{}=\"{}\": expected an integer in {}..{}", name, text, min, max));
}

std::optional<int> find_int(const Lookup& lookup, const char* name, int min, int max) {
  const std::optional<std::string> text = lookup(name);
  if (!text) return std::nullopt;
  return parse_int(name, *text, min, max);
}

constexpr int kMaxInt = std::numeric_limits<int>::max();

int require_int(const Lookup& lookup, const char* name, int min, int max, std::string_view although) {
  const std::optional<int> value = find_int(lookup, name, min, max);
  if (!value) throw EnvironmentError(fmt::format("{} is not set {}", name, although));
  return *value;
}

bool parse_switch(const char* name, std::string_view text) {
  if (text == "on") return true;
  if (text == "off") return false;
  throw EnvironmentError(fmt::format("{}=\"{}\": neither on nor off", name, text));
}

VersionRange parse_versions(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    throw EnvironmentError(fmt::format("{}=\"{}\": expected MIN..MAX", kEnvProtocol, text));
  }
  const VersionRange range{parse_int(kEnvProtocol, text.substr(0, dots), 0, kMaxInt),
                           parse_int(kEnvProtocol, text.substr(dots + 2), 0, kMaxInt)};
  if (range.min > range.max) {
    throw EnvironmentError(fmt::format("{}=\"{}\": the minimum is above the maximum", kEnvProtocol, text));
  }
  return range;
}

void read_rank(const Lookup& lookup, RankEnvironment& out) {
  const auto* const used =
      std::ranges::find_if(kLaunchers, [&](const RankVariables& v) { return lookup(v.rank).has_value(); });
  if (used == std::end(kLaunchers)) {
    throw EnvironmentError(
        fmt::format("{} is not set: a worker is started by cp-pool or by a launcher (torchrun, "
                    "mpirun, srun) that sets its rank variables; --case FILE runs without them",
                    kEnvRank));
  }
  const std::string although = fmt::format("although {} is; {} should set both", used->rank, used->launcher);
  out.world_size = require_int(lookup, used->world_size, 1, kMaxInt, although);
  out.rank = require_int(lookup, used->rank, 0, out.world_size - 1, although);
  out.local_rank = require_int(lookup, used->local_rank, 0, kMaxInt, although);
  const std::optional<int> local = find_int(lookup, used->local_world_size, 1, out.world_size);
  out.local_world_size = local.value_or(out.world_size);
  // Slurm's number of tasks per node may be that of the job instead of the step.
  out.on_one_host = used->nodes != nullptr ? find_int(lookup, used->nodes, 1, kMaxInt) == 1 : local == out.world_size;
}

void read_master(const Lookup& lookup, RankEnvironment& out) {
  if (lookup(lifeline::kEnvAddresses)) {  // rank 0 chooses the address, and the driver tells the other ranks
    out.master_addr.clear();
    return;
  }
  if (const auto address = lookup(kEnvMasterAddr)) {
    out.master_addr = *address;
  } else if (const auto launch_node = lookup("SLURM_LAUNCH_NODE_IPADDR")) {
    out.master_addr = *launch_node;
  } else {
    throw EnvironmentError(fmt::format("{} is not set: the address at which rank 0 is reached", kEnvMasterAddr));
  }
  out.master_port = static_cast<std::uint16_t>(
      require_int(lookup, kEnvMasterPort, 1, 65535, "the port on which rank 0 serves the control plane"));
}

}  // namespace

RankEnvironment read_environment(const Lookup& lookup) {
  RankEnvironment out;
  read_rank(lookup, out);
  read_master(lookup, out);
  if (const auto versions = lookup(kEnvProtocol)) out.protocol = parse_versions(*versions);
  out.master_fd = find_int(lookup, kEnvMasterFd, 0, kMaxInt);
  out.tag = lookup(kEnvTag).value_or("");
  out.token = lookup(lifeline::kEnvToken).value_or("");
  out.device = lookup(kEnvDevice).value_or("cpu");
  if (const auto share = lookup(kEnvShareGpus)) out.share_gpus = parse_switch(kEnvShareGpus, *share);
  return out;
}

RankEnvironment read_environment() {
  return read_environment(process_variable);
}

std::optional<std::string> process_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>{value};
}

std::vector<std::pair<std::string, std::string>> to_variables(const RankEnvironment& environment) {
  const int on_host = environment.local_world_size > 0 ? environment.local_world_size : environment.world_size;
  std::vector<std::pair<std::string, std::string>> out{
      {kEnvRank, std::to_string(environment.rank)},
      {kEnvWorldSize, std::to_string(environment.world_size)},
      {kEnvLocalRank, std::to_string(environment.local_rank)},
      {kEnvLocalWorldSize, std::to_string(on_host)},
      {kEnvMasterAddr, environment.master_addr},
      {kEnvMasterPort, std::to_string(environment.master_port)},
      {kEnvProtocol, fmt::format("{}..{}", environment.protocol.min, environment.protocol.max)},
      {kEnvTag, environment.tag},
      {kEnvDevice, environment.device},
      {kEnvShareGpus, environment.share_gpus ? "on" : "off"},
  };
  if (!environment.token.empty()) out.emplace_back(lifeline::kEnvToken, environment.token);
  if (environment.master_fd) out.emplace_back(kEnvMasterFd, std::to_string(*environment.master_fd));
  return out;
}

std::optional<int> common_version(VersionRange ours, VersionRange theirs) {
  const int version = std::min(ours.max, theirs.max);
  if (version < std::max(ours.min, theirs.min)) return std::nullopt;
  return version;
}

std::string random_token() {
  std::random_device random;  // the kernel's source of randomness
  std::string out;
  for (int word = 0; word < 4; ++word) out += fmt::format("{:08x}", random());
  return out;
}

bool is_same_secret(std::string_view said, std::string_view secret) {
  return said.size() == secret.size() &&
         std::inner_product(said.begin(), said.end(), secret.begin(), 0, std::bit_or<>(), std::bit_xor<>()) == 0;
}

}  // namespace cp_pool::protocol
