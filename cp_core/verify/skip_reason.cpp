#include <fmt/format.h>

#include "cp_core/verify/run_case.h"

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

std::string not_supported(const Case& c) {
  if (c.bias) return fmt::format("bias {} is not supported yet", to_string(*c.bias));
  if (c.softmax != SoftmaxType::vanilla) return fmt::format("softmax {} is not supported yet", to_string(c.softmax));
  if (c.max_logit) return "max_logit is not supported yet";
  if (c.chunk > 0) return fmt::format("chunked attention (chunk {}) is not supported yet", c.chunk);
  if (c.seqlen_q != c.seqlen_kv || c.seqlens_kv) {
    return fmt::format("q and kv of different lengths ({} and {}) are not supported yet", c.seqlen_q, c.seqlen_kv);
  }
  return {};
}

}  // namespace

std::string skip_reason(const Case& c) {
  if (auto reason = heads_not_divisible(c); !reason.empty()) return reason;
  return not_supported(c);
}

}  // namespace cp_pool
