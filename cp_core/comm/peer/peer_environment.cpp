#include "cp_core/comm/peer/peer_environment.h"

#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

namespace cp_pool {
namespace {

std::string_view value_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string peer_copies_forbidden(bool shares) {
  constexpr const char* kOwn = "CP_POOL_PEER_COPIES";
  constexpr const char* kNccl = "NCCL_P2P_DISABLE";
  const std::string_view own = value_of(kOwn);
  if (own == "off") return fmt::format("{} is off", kOwn);
  if (!own.empty() && own != "on") return fmt::format("{}: '{}' is neither on nor off", kOwn, own);
  if (shares) return {};
  const std::string_view nccl = value_of(kNccl);
  if (!nccl.empty() && nccl != "0") return fmt::format("{} is {}", kNccl, nccl);
  return {};
}

}  // namespace cp_pool
