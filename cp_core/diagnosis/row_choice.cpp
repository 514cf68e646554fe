#include "cp_core/diagnosis/row_choice.h"

#include <vector>

#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "cp_core/diagnosis/gradient_sums.h"
#include "cp_core/diagnosis/simulation.h"

namespace cp_pool::diagnosis {
namespace {

using Member = at::Tensor WholeResults::*;

// Returns the results that ranks returned for the rows of a world; undefined if a rank returned none.
at::Tensor given_rows(const World& world, Member member) {
  const at::Tensor rows = joined_rows(world.observation->results, member);
  return rows.defined() ? rows.index_select(0, is_of_keys(member) ? world.kv_rows.row : world.q_rows.row) : rows;
}

// Adds the squared distance of each row to `sum`. A NaN or infinity counts as very far, unless both values are the
// same.
void add_distance(const at::Tensor& given, const at::Tensor& predicted, at::Tensor& sum) {
  constexpr double kFar = 1e30;
  const at::Tensor same = given.eq(predicted).logical_or(given.isnan().logical_and(predicted.isnan()));
  const at::Tensor square = given.sub(predicted).square().nan_to_num(kFar, kFar).masked_fill(same, 0.0);
  const at::Tensor of_rows = square.flatten(1).sum(1);
  sum = sum.defined() ? sum.add(of_rows) : of_rows;
}

// Returns the squared distance of each row; undefined if a rank did not return the results.
at::Tensor distance_to_given(const World& world, const WholeResults& results, const std::vector<Member>& members) {
  at::Tensor sum;
  for (const Member member : members) {
    const at::Tensor given = given_rows(world, member);
    if (!given.defined() || given.sizes() != (results.*member).sizes()) return {};
    add_distance(given, results.*member, sum);
  }
  return sum;
}

at::Tensor nearest(const std::vector<Model>& models, WholeResults (*results_of)(const Model&),
                   const std::vector<Member>& members) {
  const World& world = *models.front().world;
  const bool of_keys = members.front() == &WholeResults::dk;
  at::Tensor first = at::zeros_like(of_keys ? world.kv_rows.row : world.q_rows.row);
  at::Tensor number = first;
  at::Tensor least;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const at::Tensor distance = distance_to_given(world, results_of(models[i]), members);
    if (!distance.defined()) return first;
    if (i == 0) {
      least = distance;
      continue;
    }
    const at::Tensor nearer = distance.lt(least);
    least = at::where(nearer, distance, least);
    number = number.masked_fill(nearer, static_cast<std::int64_t>(i));
  }
  return number;
}

WholeResults forward_of(const Model& model) {
  return run_forward(model).results;
}

WholeResults dq_of(const Model& model) {
  WholeResults results;
  results.dq = sum_dq(model, run_backward(model, run_forward(model)));
  return results;
}

WholeResults gradients_of(const Model& model) {
  const Forward forward = run_forward(model);
  WholeResults results = forward.results;
  sum_gradients(model, run_backward(model, forward), /*absolute=*/false, results);
  return results;
}

}  // namespace

at::Tensor nearest_model(const std::vector<Model>& models) {
  return nearest(models, forward_of, {&WholeResults::out, &WholeResults::lse});
}

at::Tensor nearest_model_in_dq(const std::vector<Model>& models) {
  return nearest(models, dq_of, {&WholeResults::dq});
}

at::Tensor nearest_model_in_dk(const std::vector<Model>& models) {
  return nearest(models, gradients_of, {&WholeResults::dk});
}

at::Tensor chosen(const at::Tensor& number, const std::vector<Model>& models, at::Tensor Model::* member) {
  at::Tensor out = models.front().*member;
  for (std::size_t i = 1; i < models.size(); ++i) {
    out = at::where(number.eq(static_cast<std::int64_t>(i)), models[i].*member, out);
  }
  return out;
}

}  // namespace cp_pool::diagnosis
