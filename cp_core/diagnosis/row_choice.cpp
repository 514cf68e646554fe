#include "cp_core/diagnosis/row_choice.h"

#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "cp_core/diagnosis/gradient_sums.h"
#include "cp_core/diagnosis/simulation.h"

namespace cp_pool::diagnosis {
namespace {

using Member = at::Tensor WholeResults::*;

// What ranks gave to the queries of a world; undefined if one gave nothing.
at::Tensor given_rows(const World& world, Member member) {
  std::vector<at::Tensor> parts;
  for (const verify::Results& of_rank : world.observation->results) {
    if (!(of_rank.*member).defined()) return {};
    parts.push_back(of_rank.*member);
  }
  return at::cat(parts).index_select(0, world.q_rows.row);
}

// Adds of each query the square of its distance. A value that is no number is as far off as can be, unless both are.
void add_distance(const at::Tensor& given, const at::Tensor& predicted, at::Tensor& sum) {
  constexpr double kFar = 1e30;
  const at::Tensor same = given.eq(predicted).logical_or(given.isnan().logical_and(predicted.isnan()));
  const at::Tensor square = given.sub(predicted).square().nan_to_num(kFar, kFar).masked_fill(same, 0.0);
  const at::Tensor of_rows = square.flatten(1).sum(1);
  sum = sum.defined() ? sum.add(of_rows) : of_rows;
}

at::Tensor second_is_nearer(const World& world, const WholeResults& first, const WholeResults& second,
                            const std::vector<Member>& members) {
  at::Tensor of_first;
  at::Tensor of_second;
  for (const Member member : members) {
    const at::Tensor given = given_rows(world, member);
    if (!given.defined() || given.sizes() != (first.*member).sizes()) return at::zeros_like(world.q_rows.valid);
    add_distance(given, first.*member, of_first);
    add_distance(given, second.*member, of_second);
  }
  return of_second.lt(of_first);
}

WholeResults gradients_of(const Model& model) {
  const Forward forward = run_forward(model);
  WholeResults results = forward.results;
  sum_gradients(model, run_backward(model, forward), /*absolute=*/false, results);
  return results;
}

}  // namespace

at::Tensor second_is_nearer(const Model& first, const Model& second) {
  return second_is_nearer(*first.world, run_forward(first).results, run_forward(second).results,
                          {&WholeResults::out, &WholeResults::lse});
}

at::Tensor second_is_nearer_in_dq(const Model& first, const Model& second) {
  return second_is_nearer(*first.world, gradients_of(first), gradients_of(second), {&WholeResults::dq});
}

}  // namespace cp_pool::diagnosis
