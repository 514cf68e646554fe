// Chooses, row by row, which of several models the returned results fit best.
#include <functional>
#include <vector>

#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "cp_core/diagnosis/rank_parts.h"
#include "cp_core/diagnosis/simulation.h"

namespace cp_pool::diagnosis {
namespace {

using Member = at::Tensor WholeResults::*;

// The squared distance of each row to what the ranks returned; undefined if a rank returned none. A NaN or infinity
// counts as very far, unless both values are the same.
at::Tensor distance_to_given(const World& world, const WholeResults& results, Member member) {
  constexpr double kFar = 1e30;
  const at::Tensor whole = joined_rows(world.observation->results, member);
  const at::Tensor& predicted = results.*member;
  if (!whole.defined()) return {};
  const at::Tensor given = whole.index_select(0, world.side_of(member)->row);
  if (given.sizes() != predicted.sizes()) return {};
  const at::Tensor same = given.eq(predicted).logical_or(given.isnan().logical_and(predicted.isnan()));
  return given.sub(predicted).square().nan_to_num(kFar, kFar).masked_fill(same, 0.0).flatten(1).sum(1);
}

at::Tensor nearest(const std::vector<Model>& models, const std::function<WholeResults(const Model&)>& results_of,
                   const std::vector<Member>& members) {
  const World& world = *models.front().world;
  at::Tensor number = at::zeros_like(world.side_of(members.front())->row);
  at::Tensor least;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const WholeResults results = results_of(models[i]);
    at::Tensor distance = at::zeros_like(number, at::kDouble);
    for (const Member member : members) {
      const at::Tensor of_member = distance_to_given(world, results, member);
      if (!of_member.defined()) return at::zeros_like(number);
      distance.add_(of_member);
    }
    const at::Tensor nearer = i == 0 ? distance.isfinite() : distance.lt(least);
    least = i == 0 ? distance : at::where(nearer, distance, least);
    number = number.masked_fill(nearer, static_cast<std::int64_t>(i));
  }
  return number;
}

}  // namespace

at::Tensor nearest_model(const std::vector<Model>& models) {
  return nearest(models, [](const Model& model) { return run_forward(model).results; },
                 {&WholeResults::out, &WholeResults::lse});
}

at::Tensor nearest_model_in_dq(const std::vector<Model>& models) {
  const auto dq = [](const Model& model) {
    WholeResults results;
    results.dq = sum_dq(model, run_backward(model, run_forward(model)));
    return results;
  };
  return nearest(models, dq, {&WholeResults::dq});
}

at::Tensor nearest_model_in_dk(const std::vector<Model>& models) {
  const auto gradients = [](const Model& model) {
    const Forward forward = run_forward(model);
    WholeResults results = forward.results;
    sum_gradients(model, run_backward(model, forward), /*absolute=*/false, results);
    return results;
  };
  return nearest(models, gradients, {&WholeResults::dk});
}

at::Tensor chosen(const at::Tensor& number, const std::vector<Model>& models, at::Tensor Model::* member) {
  at::Tensor out = models.front().*member;
  for (std::size_t i = 1; i < models.size(); ++i) {
    out = at::where(number.eq(static_cast<std::int64_t>(i)), models[i].*member, out);
  }
  return out;
}

}  // namespace cp_pool::diagnosis
