#include "cp_core/diagnosis/model.h"

#include <numeric>

#include <ATen/ops/logaddexp.h>
#include <ATen/ops/ones.h>

#include "cp_core/diagnosis/mask_rule.h"

namespace cp_pool::diagnosis {
namespace {

std::vector<std::int64_t> all_heads(std::int64_t count) {
  std::vector<std::int64_t> heads(static_cast<std::size_t>(count));
  std::iota(heads.begin(), heads.end(), std::int64_t{0});
  return heads;
}

Pass defined_pass(const World& world) {
  const Case& c = world.c();
  Pass pass;
  pass.times = MaskRule(world).times();
  pass.scale = world.problem.scale();
  pass.q_head = pass.dout_head = pass.sink_head = all_heads(c.heads);
  pass.kv_head = defined_kv_heads(c);
  if (world.bias.defined()) {
    pass.bias_index = world.bias_index();
    pass.bias_head =
        world.bias.size(1) == 1 ? std::vector<std::int64_t>(static_cast<std::size_t>(c.heads), 0) : all_heads(c.heads);
  }
  return pass;
}

}  // namespace

Merge merge_rightly(const at::Tensor& lse, const at::Tensor& part_lse, bool /*first*/) {
  const at::Tensor total = at::logaddexp(lse, part_lse);
  return {.keep = lse.sub(total).exp(), .add = part_lse.sub(total).exp(), .lse = total};
}

Model::Model(const World& of) : world(&of), forward(defined_pass(of)), backward(forward) {
  const Case& c = of.c();
  const auto options = at::TensorOptions().dtype(at::kDouble);
  dq_head = all_heads(c.heads);
  dkv_head = defined_kv_heads(c);
  shares_dbias = shares_dsink = shares_max_logit = at::ones({of.ranks, of.ranks}, options);
  dbias_heads = at::ones({of.ranks, c.heads}, options);
}

}  // namespace cp_pool::diagnosis
