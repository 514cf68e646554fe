#include <fmt/format.h>

#include "cp_core/attention/cuda_backends.h"
#include "cp_core/cuda/cuda_part.h"
#include "cp_core/trial/run_case.h"

namespace cp_pool {
namespace {

// a2a gives each rank of a group its share of the heads.
std::string heads_not_divisible(const Case& c) {
  if (c.comm != CommType::a2a && c.comm != CommType::a2a_p2p) return {};
  const int ranks = c.comm == CommType::a2a ? c.cp_size : 2;
  if (c.heads % ranks == 0 && c.kv_heads % ranks == 0) return {};
  return fmt::format("{} splits heads over {} ranks: {} heads and {} kv_heads do not both divide by {}",
                     to_string(c.comm), ranks, c.heads, c.kv_heads, ranks);
}

}  // namespace

std::string skip_reason(const Case& c, const at::Device& device) {
  if (std::string reason = heads_not_divisible(c); !reason.empty()) return reason;
  return device.is_cuda() ? cuda_part<CudaBackends>().skip_reason(c) : "";
}

}  // namespace cp_pool
