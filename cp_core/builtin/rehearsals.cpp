#include <ranges>
#include <stdexcept>

#include <fmt/format.h>

#include "cases/backend_facts.h"
#include "cases/case_id.h"
#include "cases/case_names.h"
#include "cp_core/builtin/builtin_implementation.h"
#include "cp_core/comm/single_rank.h"
#include "cp_core/cuda/device.h"

namespace cp_pool {

void rehearse_case(const Case& c, const at::Device& device) {
  if (device.is_cuda()) cuda_device().use_device(device.index());
  const CpGroups alone = single_rank_groups(device);
  RunOptions options;
  options.device = device;
  options.reference_cache = false;
  options.sets_global_flags = false;
  const RankReport report = run_case(c, alone, options);
  if (report.outcome != CaseOutcome::pass) {
    throw std::runtime_error(fmt::format("{}: {}", case_id(c), report.reason));
  }
}

std::vector<Preparation> rehearsals(const at::Device& device) {
  std::vector<Preparation> pieces;
  if (!device.is_cuda()) return pieces;
  // In reverse order, since the libraries take longest to load and come after math.
  for (const Backend backend : kValues<Backend> | std::views::reverse) {
    if (!facts_of(backend).rehearsed) continue;
    Case c;
    c.backend = backend;
    c.cp_size = 1;
    c.batch = 1;
    c.seqlen_q = c.seqlen_kv = 128;
    c.heads = c.kv_heads = 1;
    c.head_dim_qk = c.head_dim_v = 128;
    c.dtype = DType::bf16;
    c.causal = true;
    pieces.emplace_back([c, device] { rehearse_case(c, device); });
  }
  return pieces;
}

}  // namespace cp_pool
