#include "cp_core/diagnosis/simulated_step.h"

#include <cmath>
#include <functional>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "cp_core/diagnosis/mask_rule.h"
#include "cp_core/diagnosis/rank_parts.h"

namespace cp_pool::diagnosis {

at::Tensor Operands::queries(Keys which) const {
  const at::Tensor& other = which == Keys::k ? pass_.q : pass_.dout;
  const at::Tensor& rows = other.defined() ? other : which == Keys::k ? dense_.q : dense_.dout;
  const HeadMap& heads = which == Keys::k ? pass_.q_head : pass_.dout_head;
  return (absolute_ ? rows.abs() : rows).transpose(0, 1).index_select(0, index_tensor(heads));
}

at::Tensor Operands::keys(Keys which) const {
  const at::Tensor& other = which == Keys::k ? pass_.k : pass_.v;
  const at::Tensor& rows = other.defined() ? other : which == Keys::k ? dense_.k : dense_.v;
  const bool own_heads = which == Keys::v && !pass_.v_head.empty();
  return by_query_head(absolute_ ? rows.abs() : rows, own_heads ? pass_.v_head : pass_.kv_head);
}

at::Tensor Operands::products(Keys which) const {
  const auto of = [this](Keys some) { return at::bmm(queries(some), keys(some).transpose(1, 2)); };
  const HeadMap& heads = which == Keys::k ? pass_.q_head : pass_.dout_head;
  const bool as_defined = !absolute_ && !(which == Keys::k ? pass_.q : pass_.dout).defined() && !pass_.k.defined() &&
                          !pass_.v.defined() && pass_.v_head.empty() && pass_.kv_head == defined_kv_heads(dense_.c()) &&
                          heads == mapped(static_cast<std::int64_t>(heads.size()), std::identity());
  const at::Tensor known = as_defined ? dense_.raw_products(which == Keys::v) : of(which);
  at::Tensor all = at_places(known, which);
  const at::Tensor exchanged = exchanged_pairs();
  if (!exchanged.defined()) return all;
  const Keys other = which == Keys::k ? Keys::v : Keys::k;
  return at::where(exchanged, at_places(at::bmm(queries(which), keys(other).transpose(1, 2)), other), all);
}

at::Tensor Operands::weighted(const at::Tensor& of_places, Keys which) const {
  const at::Tensor exchanged = exchanged_pairs();
  if (!exchanged.defined()) return at::bmm(at_rows(of_places, which), keys(which));
  const Keys other = which == Keys::k ? Keys::v : Keys::k;
  return at::bmm(at_rows(of_places.masked_fill(exchanged, 0.0), which), keys(which))
      .add_(at::bmm(at_rows(of_places.masked_fill(exchanged.logical_not(), 0.0), other), keys(other)));
}

at::Tensor Operands::held_by_pair(Keys which) const {
  const at::Tensor& held = which == Keys::v && pass_.held_v.defined() ? pass_.held_v : pass_.held;
  return held.defined() ? held.index_select(0, dense_.q_rows.rank) : held;
}

at::Tensor Operands::at_places(const at::Tensor& of_rows, Keys which) const {
  const at::Tensor rows = held_by_pair(which);
  if (!rows.defined()) return of_rows;
  const at::Tensor index = rows.clamp_min(0).unsqueeze(0).expand_as(of_rows);
  return of_rows.gather(-1, index).masked_fill_(rows.lt(0), 0.0);
}

at::Tensor Operands::at_rows(const at::Tensor& of_places, Keys which) const {
  const at::Tensor rows = held_by_pair(which);
  if (!rows.defined()) return of_places;
  const at::Tensor index = rows.clamp_min(0).unsqueeze(0).expand_as(of_places);
  return at::zeros_like(of_places).scatter_add_(-1, index, of_places.masked_fill(rows.lt(0), 0.0));
}

at::Tensor Operands::poisoned_pairs() const {
  const at::Tensor& queries = pass_.q_poisoned.defined() ? pass_.q_poisoned : dense_.q_rows.poisoned;
  const at::Tensor& keys = pass_.kv_poisoned.defined() ? pass_.kv_poisoned : dense_.kv_rows.poisoned;
  if (!queries.any().item<bool>() && !keys.any().item<bool>()) return {};
  const at::Tensor held = held_by_pair(Keys::k);
  const at::Tensor of_pairs = held.defined() ? keys.take(held.clamp_min(0)).logical_and(held.ge(0)) : keys.unsqueeze(0);
  return queries.unsqueeze(1).logical_or(of_pairs);
}

at::Tensor Operands::exchanged_pairs() const {
  return pass_.exchanged.defined() ? pass_.exchanged.index_select(0, dense_.q_rows.rank) : at::Tensor();
}

namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

struct Scores {
  at::Tensor values;
  at::Tensor slope;  // of the softcap; undefined without one
};

Scores scores_of(const DenseProblem& dense, const Pass& pass) {
  at::Tensor scores = Operands(dense, pass, /*absolute=*/false).raw_scores().mul(pass.scale);
  at::Tensor slope;
  const auto cap = [&] {
    if (pass.softcap == 0) return;
    scores.div_(pass.softcap).tanh_();
    slope = scores.square().neg_().add_(1.0);
    scores.mul_(pass.softcap);
  };
  if (!pass.cap_has_bias) cap();
  if (dense.bias.defined()) {
    const at::Tensor by_head = dense.bias.transpose(0, 1).flatten(1).index_select(0, index_tensor(pass.bias_head));
    scores.add_(by_head.index_select(1, pass.bias_index.flatten()).view(scores.sizes()));
  }
  if (pass.cap_has_bias) cap();
  if (pass.least_score > -kInfinity) scores.clamp_min_(pass.least_score);
  return {.values = scores, .slope = slope};
}

// Sums [heads, q rows, kv rows] over the pairs of each part: [heads, q rows, parts].
at::Tensor by_part(const SimulatedStep& model, const at::Tensor& of_pairs) {
  if (!model.part.defined()) return of_pairs.sum(-1, /*keepdim=*/true);
  const at::Tensor sums = at::zeros({of_pairs.size(0), of_pairs.size(1), model.parts}, of_pairs.options());
  return sums.scatter_add(-1, model.part.unsqueeze(0).expand_as(of_pairs), of_pairs);
}

// The reverse: gives each pair the value of its part.
at::Tensor of_pairs(const SimulatedStep& model, const at::Tensor& of_parts, const at::Tensor& like) {
  if (!model.part.defined()) return of_parts;
  return of_parts.gather(-1, model.part.unsqueeze(0).expand_as(like));
}

struct Merged {
  at::Tensor weights;  // [heads, q rows, parts]
  at::Tensor lse;      // [heads, q rows]
};

// The sink as it joins, in this shape, [heads, q rows]. Undefined: none joins.
at::Tensor joined_sink(const SimulatedStep& model, const at::Tensor& like) {
  const DenseProblem& dense = *model.dense;
  if (!dense.sink.defined() || model.sink_times == 0) return {};
  const at::Tensor sink =
      (model.sink.defined() ? model.sink : dense.sink).index_select(0, index_tensor(model.forward.sink_head));
  return sink.add(std::log(model.sink_times)).unsqueeze(1).expand_as(like);
}

// bool [heads, q rows]: whether the sink joins the row.
at::Tensor rows_with_sink(const SimulatedStep& model, const at::Tensor& lse) {
  const at::Tensor rows = model.dense->q_rows.valid.unsqueeze(0).expand_as(lse);
  return model.sink_needs_a_key ? rows.logical_and(lse.gt(kNothing / 2)) : rows;
}

// Merges the parts in order, and then the sink. sink: [heads, q rows]; undefined if there is none.
Merged merged(const SimulatedStep& model, const at::Tensor& part_lse, const at::Tensor& sink) {
  std::vector<at::Tensor> weights;
  at::Tensor lse = at::full_like(part_lse.select(-1, 0), kNothing);
  for (std::int64_t s = 0; s < part_lse.size(-1); ++s) {
    const Merge step = model.merge(lse, part_lse.select(-1, s), s == 0);
    for (at::Tensor& weight : weights) weight = weight.mul(step.keep);
    weights.push_back(step.add);
    lse = step.lse;
  }
  at::Tensor all = at::stack(weights, -1);
  if (model.counts_parts) all = all.div(part_lse.gt(kNothing / 2).sum(-1, /*keepdim=*/true).clamp_min(1));
  if (sink.defined()) {
    const at::Tensor total = at::where(rows_with_sink(model, lse), at::logaddexp(lse, sink), lse);
    all = all.mul(lse.sub(total).exp().unsqueeze(-1));
    lse = total;
  }
  return {.weights = all, .lse = lse};
}

// Converts [heads, q rows, dim] to [q rows, heads, dim].
at::Tensor by_row(const at::Tensor& of_heads) {
  return of_heads.transpose(0, 1).contiguous();
}

// Returns the largest score of all pairs, as each rank returns it: [ranks, heads, 1].
at::Tensor max_logits(const SimulatedStep& model, const at::Tensor& scores) {
  const at::Tensor& times = model.forward.times;
  at::Tensor counted = scores.masked_fill(times.eq(0.0), -kInfinity);
  const at::Tensor poisoned = Operands(*model.dense, model.forward, /*absolute=*/false).poisoned_pairs();
  if (poisoned.defined()) counted.masked_fill_(poisoned.logical_and(times.ne(0.0)), kNotANumber);
  return counted.flatten(1).amax(-1).view({1, -1, 1}).expand({model.dense->ranks, -1, -1});
}

bool same_pass(const Pass& a, const Pass& b) {
  for (const auto member : {&Pass::times, &Pass::held, &Pass::held_v, &Pass::exchanged, &Pass::bias_index, &Pass::q,
                            &Pass::k, &Pass::v, &Pass::dout}) {
    if (!(a.*member).is_same(b.*member)) return false;
  }
  return a.scale == b.scale && a.softcap == b.softcap && a.cap_has_bias == b.cap_has_bias &&
         a.least_score == b.least_score && a.v_head == b.v_head && a.q_head == b.q_head && a.kv_head == b.kv_head &&
         a.dout_head == b.dout_head && a.bias_head == b.bias_head && a.sink_head == b.sink_head;
}

// Computes the derivative of an incorrect merge by autograd: how its weights change with the lse of parts and the sink.
void differentiate_merge(const SimulatedStep& model, const Forward& forward, Backward& backward) {
  const at::Tensor part_delta = by_part(model, forward.part_p.mul(backward.dp));
  const at::AutoGradMode with_gradients(true);
  at::Tensor part_lse = forward.part_lse.detach().clone().requires_grad_();
  at::Tensor sink = joined_sink(model, forward.lse);
  if (sink.defined()) sink = sink.clone().requires_grad_();
  const Merged all = merged(model, part_lse, sink);
  // The weights may be constant, and then have no gradient.
  if (all.weights.requires_grad()) all.weights.mul(part_delta).sum().backward();
  const at::Tensor of_lse = part_lse.grad().defined() ? part_lse.grad() : at::zeros_like(part_delta);
  backward.p = forward.p;
  backward.ds = forward.p.mul(backward.dp.sub(of_pairs(model, part_delta, forward.p)))
                    .add_(forward.part_p.mul(of_pairs(model, of_lse, forward.p)));
  backward.delta = part_delta.mul(forward.weights).sum(-1, /*keepdim=*/true);
  if (!sink.defined()) return;
  backward.p_sink = sink.detach().sub(forward.lse).exp_();
  backward.dsink = sink.grad().defined() ? sink.grad().detach() : at::zeros_like(backward.p_sink);
}

// Adds the gradient of the sink. derivative: of the sink as the forward used it; otherwise of a sink that joined once.
// delta: [heads, q rows, 1], of dout and out in the order in which the rank has them.
void add_dsink(const SimulatedStep& model, const Forward& forward, const at::Tensor& lse, const at::Tensor& delta,
               bool derivative, Backward& backward) {
  const DenseProblem& dense = *model.dense;
  if (derivative && model.sink_times == 0) {
    backward.p_sink = backward.dsink = at::zeros_like(lse);
    return;
  }
  const at::Tensor& sink = derivative && model.sink.defined() ? model.sink : dense.sink;
  const at::Tensor of_heads = sink.index_select(0, index_tensor(model.backward.sink_head)).unsqueeze(1);
  const at::Tensor joins = rows_with_sink(model, forward.lse.clamp_min(kNothing));
  backward.p_sink = of_heads.sub(lse)
                        .exp_()
                        .mul_(derivative ? model.sink_times : 1.0)
                        .masked_fill_(joins.logical_not().logical_or(lse.eq(-kInfinity)), 0.0);
  backward.dsink = backward.p_sink.mul(delta.squeeze(-1)).neg_();
}

Pass defined_pass(const DenseProblem& dense) {
  const Case& c = dense.c();
  Pass pass;
  pass.times = MaskRule(dense).times();
  pass.scale = dense.problem.scale();
  pass.softcap = dense.problem.softcap;
  pass.q_head = pass.dout_head = pass.sink_head = mapped(c.heads, std::identity());
  pass.kv_head = defined_kv_heads(c);
  if (dense.bias.defined()) {
    pass.bias_index = dense.bias_index();
    pass.bias_head = mapped(c.heads, [shared = dense.bias.size(1) == 1](std::int64_t h) { return shared ? 0 : h; });
  }
  return pass;
}

}  // namespace

Forward run_forward(const SimulatedStep& model) {
  const DenseProblem& dense = *model.dense;
  const Operands operands(dense, model.forward, /*absolute=*/false);
  Forward forward;
  const Scores scores = scores_of(dense, model.forward);
  forward.scores = scores.values;
  forward.slope = scores.slope;
  const at::Tensor& times = model.forward.times;
  const at::Tensor seen = forward.scores.masked_fill(times.eq(0.0), -kInfinity);
  at::Tensor largest = seen.amax(-1, /*keepdim=*/true);
  largest = largest.masked_fill(largest.isinf(), 0.0);
  const at::Tensor e = seen.sub(largest).exp_().mul_(times);
  const at::Tensor sums = by_part(model, e);
  const at::Tensor empty = sums.eq(0.0);
  forward.part_lse = sums.log().add_(largest).masked_fill_(empty, kNothing);
  forward.part_p = e.div(of_pairs(model, sums.masked_fill(empty, 1.0), e));
  const Merged all = merged(model, forward.part_lse, joined_sink(model, forward.part_lse.select(-1, 0)));
  forward.weights = all.weights;
  forward.p = forward.part_p.mul(of_pairs(model, all.weights, e));
  forward.lse = all.lse.masked_fill(all.lse.lt(kNothing / 2), -kInfinity);
  if (const at::Tensor poisoned = operands.poisoned_pairs(); poisoned.defined()) {
    const at::Tensor rows = poisoned.logical_and(times.ne(0.0)).any(-1, /*keepdim=*/true);
    forward.p.masked_fill_(rows.logical_and(times.ne(0.0)), kNotANumber);
    forward.lse.masked_fill_(rows.squeeze(-1), kNotANumber);
  }
  if (model.nan_without_keys) {
    const at::Tensor rows = times.sum(-1, /*keepdim=*/true).eq(0.0).logical_and(dense.q_rows.valid.unsqueeze(1));
    forward.p.masked_fill_(rows.logical_and(dense.q_rows.sequence.unsqueeze(1).eq(dense.kv_rows.sequence.unsqueeze(0))),
                           kNotANumber);
    forward.lse.masked_fill_(rows.squeeze(-1), kNotANumber);
  }
  forward.results.out = by_row(operands.times_v(forward.p));
  forward.results.lse = by_row(forward.lse.unsqueeze(-1));
  if (dense.q_rows.first.empty()) return forward;  // the problem is a sample of the queries
  if (dense.c().max_logit) forward.results.max_logit = max_logits(model, forward.scores);
  if (model.returned) model.returned(dense, forward.results);
  return forward;
}

Backward run_backward(const SimulatedStep& model, const Forward& forward) {
  const DenseProblem& dense = *model.dense;
  const Pass& pass = model.backward;
  const Operands operands(dense, pass, /*absolute=*/false);
  const bool derivative = !model.from_returned && same_pass(model.forward, pass) && !model.lse_of_part &&
                          !model.delta_of_part && !model.delta_missing && model.delta_head.empty() &&
                          model.lse_head.empty() && !model.exponentials_divided;
  Backward backward;
  backward.dp = operands.raw_dp();
  const Scores scores = pass.softcap != 0 || !derivative ? scores_of(dense, pass) : Scores{};
  if (!model.slope_missing) backward.slope = scores.slope;
  if (derivative && !model.merges_rightly) {
    differentiate_merge(model, forward, backward);
    return backward;
  }
  // Delta uses the out of the forward, even if the backward reads other K and V.
  const at::Tensor out = model.from_returned
                             ? forward.results.out
                             : by_row(Operands(dense, model.forward, /*absolute=*/false).times_v(forward.p));
  const at::Tensor lse = model.from_returned ? forward.results.lse.squeeze(-1).transpose(0, 1) : forward.lse;
  if (derivative) {
    backward.p = forward.p;
  } else {
    const at::Tensor of_heads = model.lse_head.empty() ? lse : lse.index_select(0, index_tensor(model.lse_head));
    const at::Tensor of_rows =
        model.lse_of_part ? of_pairs(model, forward.part_lse, forward.p) : of_heads.unsqueeze(-1);
    const at::Tensor seen = scores.values.masked_fill(pass.times.eq(0.0), -kInfinity);
    const at::Tensor known = of_rows.masked_fill(of_rows.eq(-kInfinity), kInfinity);
    backward.p = model.exponentials_divided
                     ? seen.to(at::kFloat).exp_().div_(known.to(at::kFloat).exp_()).to(at::kDouble).mul_(pass.times)
                     : seen.sub(known).exp_().mul_(pass.times);
  }
  const at::Tensor of_tokens =  // [heads, q rows, 1]
      (model.delta_head.empty() ? operands.dout().mul(out.transpose(0, 1)) : dense.dout.mul(out).transpose(0, 1))
          .sum(-1, /*keepdim=*/true);
  at::Tensor delta = model.delta_head.empty() ? of_tokens : of_tokens.index_select(0, index_tensor(model.delta_head));
  backward.delta = delta;
  if (model.delta_missing) delta = at::zeros_like(delta);
  if (model.delta_of_part) delta = of_pairs(model, by_part(model, forward.part_p.mul(backward.dp)), forward.p);
  backward.ds = backward.dp.sub(delta).mul_(backward.p);
  if (model.nan_without_keys) backward.ds.masked_fill_(pass.times.sum(-1, /*keepdim=*/true).eq(0.0), 0.0);
  if (pass.cap_has_bias && backward.slope.defined()) {
    backward.ds.mul_(backward.slope);
    backward.slope.reset();
  }
  if (dense.sink.defined()) add_dsink(model, forward, lse, of_tokens, derivative, backward);
  return backward;
}

Merge merge_rightly(const at::Tensor& lse, const at::Tensor& part_lse, bool /*first*/) {
  const at::Tensor total = at::logaddexp(lse, part_lse);
  return {.keep = lse.sub(total).exp(), .add = part_lse.sub(total).exp(), .lse = total};
}

SimulatedStep::SimulatedStep(const DenseProblem& of) : dense(&of), forward(defined_pass(of)), backward(forward) {
  const Case& c = of.c();
  const auto options = at::TensorOptions().dtype(at::kDouble);
  dq_head = mapped(c.heads, std::identity());
  dkv_head = defined_kv_heads(c);
  shares_dbias = shares_dsink = at::ones({of.ranks, of.ranks}, options);
  dbias_heads = at::ones({of.ranks, c.heads}, options);
}

}  // namespace cp_pool::diagnosis
