#include "cp_core/diagnosis/model.h"

#include <functional>

#include <ATen/ops/logaddexp.h>
#include <ATen/ops/ones.h>

#include "cp_core/diagnosis/mask_rule.h"
#include "cp_core/diagnosis/rank_parts.h"

namespace cp_pool::diagnosis {
namespace {

Pass defined_pass(const World& world) {
  const Case& c = world.c();
  Pass pass;
  pass.times = MaskRule(world).times();
  pass.scale = world.problem.scale();
  pass.q_head = pass.dout_head = pass.sink_head = mapped(c.heads, std::identity());
  pass.kv_head = defined_kv_heads(c);
  if (world.bias.defined()) {
    pass.bias_index = world.bias_index();
    pass.bias_head = mapped(c.heads, [shared = world.bias.size(1) == 1](std::int64_t h) { return shared ? 0 : h; });
  }
  return pass;
}

}  // namespace

bool same_heads(const Pass& a, const Pass& b) {
  return a.least_score == b.least_score && a.v_head == b.v_head && a.q_head == b.q_head && a.kv_head == b.kv_head &&
         a.dout_head == b.dout_head && a.bias_head == b.bias_head && a.sink_head == b.sink_head;
}

Merge merge_rightly(const at::Tensor& lse, const at::Tensor& part_lse, bool /*first*/) {
  const at::Tensor total = at::logaddexp(lse, part_lse);
  return {.keep = lse.sub(total).exp(), .add = part_lse.sub(total).exp(), .lse = total};
}

Model::Model(const World& of) : world(&of), forward(defined_pass(of)), backward(forward) {
  const Case& c = of.c();
  const auto options = at::TensorOptions().dtype(at::kDouble);
  dq_head = mapped(c.heads, std::identity());
  dkv_head = defined_kv_heads(c);
  shares_dbias = shares_dsink = at::ones({of.ranks, of.ranks}, options);
  dbias_heads = at::ones({of.ranks, c.heads}, options);
}

}  // namespace cp_pool::diagnosis
