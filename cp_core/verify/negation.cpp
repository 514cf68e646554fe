#include "cp_core/verify/negation.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

namespace cp_pool::verify {
namespace {

using Member = at::Tensor Results::*;

constexpr std::array kNegated{&Results::out, &Results::dq, &Results::dk, &Results::dv};

bool is_negated(Member result) {
  return std::ranges::find(kNegated, result) != kNegated.end();
}

// Returns the rows that are judged, one vector each: the last dimension is that of the vectors.
at::Tensor judged_rows(const RankView& view, Member result, const at::Tensor& tensor) {
  if (!is_negated(result)) {
    const bool by_row = result == &Results::lse && tensor.dim() == 2 && tensor.size(1) == view.q.count();
    const bool judged = view.sharding.judges_padding || !by_row;
    return (judged ? tensor : tensor.index_select(1, view.q.valid_rows())).unsqueeze(-1);
  }
  const RankRows& rows = result == &Results::out || result == &Results::dq ? view.q : view.kv;
  if (view.sharding.judges_padding || !rows.fits(tensor)) return tensor;
  return rows.packed(tensor).index_select(0, rows.valid_rows());
}

// bool, one for each row.
at::Tensor equal_rows(const at::Tensor& a, const at::Tensor& b) {
  return a.eq(b).logical_or_(a.isnan().logical_and_(b.isnan())).all(-1);
}

std::optional<Difference> difference(const RankView& view, std::string_view name, Member result,
                                     const at::Tensor& first, const at::Tensor& again) {
  if (!first.defined() && !again.defined()) return std::nullopt;
  if (!first.defined() || !again.defined() || first.sizes() != again.sizes() || first.dtype() != again.dtype()) {
    return Difference{.tensor = name, .text = fmt::format("{} of another shape", name)};
  }
  const at::Tensor before = judged_rows(view, result, first);
  const at::Tensor after = judged_rows(view, result, again);
  if (before.equal(after)) return std::nullopt;  // without NaN this is the answer, and costs little
  const at::Tensor differing = equal_rows(before, after).logical_not_();
  const auto count = differing.sum().item<std::int64_t>();
  if (count == 0) return std::nullopt;
  Difference found{.tensor = name, .text = fmt::format("{} in {} of {} rows", name, count, differing.numel())};
  if (is_negated(result) && after.is_floating_point()) {
    const at::Tensor unreached = equal_rows(before, after.neg()).logical_and_(before.ne(0).any(-1));
    found.earlier = unreached.logical_and_(differing).sum().item<std::int64_t>();
  }
  return found;
}

}  // namespace

void negate(Shards& shards) {
  for (at::Tensor* const input : {&shards.q, &shards.k, &shards.v, &shards.dout}) {
    if (input->defined()) input->neg_();
  }
}

void negate(Results& results) {
  for (const Member result : kNegated) {
    at::Tensor& tensor = results.*result;
    if (tensor.defined() && tensor.is_floating_point()) tensor = tensor.neg();
  }
}

std::vector<Difference> differences(const RankView& view, const Results& first, const Results& again) {
  std::vector<Difference> found;
  for (const auto& [name, result] : kResults) {
    if (auto one = difference(view, name, result, first.*result, again.*result)) found.push_back(*std::move(one));
  }
  return found;
}

}  // namespace cp_pool::verify
