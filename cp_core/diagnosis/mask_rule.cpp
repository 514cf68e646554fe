#include "cp_core/diagnosis/mask_rule.h"

#include <algorithm>

#include <ATen/ops/div.h>

namespace cp_pool::diagnosis {
namespace {

at::Tensor of_sequences(const std::vector<std::int64_t>& lengths, const at::Tensor& sequences) {
  return index_tensor(lengths).index_select(0, sequences.clamp_min(0));
}

}  // namespace

MaskRule::MaskRule(const DenseProblem& of) : dense(of) {
  const Case& c = dense.c();
  causal = c.causal;
  for (std::size_t side = 0; side < window.size(); ++side) {
    if (c.window.at(side) >= 0) window.at(side) = c.window.at(side);
  }
  chunk = c.chunk;
  slices = c.mask;
  places = {.q_sequence = dense.q_rows.sequence,
            .q_position = dense.q_rows.position,
            .kv_sequence = dense.kv_rows.sequence,
            .kv_position = dense.kv_rows.position};
  valid_q = dense.lengths().valid_q;
  valid_kv = dense.lengths().valid_kv;
  padded_q = dense.lengths().padded_q;
  padded_kv = dense.lengths().padded_kv;
  keys_that_count = dense.kv_rows.copy.logical_not();
}

at::Tensor MaskRule::valid_pairs() const {
  if (valid_rows) return valid_rows->first.unsqueeze(1).logical_and(valid_rows->second.unsqueeze(0));
  const auto inside = [](const at::Tensor& position, const at::Tensor& length) {
    return position.ge(0).logical_and(position.lt(length));
  };
  const at::Tensor q_length = of_sequences(padding_queries ? padded_q : valid_q, places.q_sequence);
  const at::Tensor kv_length = of_sequences(padding_keys ? padded_kv : valid_kv, places.kv_sequence);
  return inside(places.q_position, q_length)
      .unsqueeze(1)
      .logical_and(inside(places.kv_position, kv_length).unsqueeze(0));
}

std::pair<at::Tensor, at::Tensor> MaskRule::diagonal_of(const Places& of) const {
  const at::Tensor difference = of_sequences(valid_kv, of.q_sequence).sub(of_sequences(valid_q, of.q_sequence));
  at::Tensor i = of.q_position.add(shift);
  if (diagonal == Diagonal::bottom_right) i = i.add(difference);
  if (diagonal == Diagonal::reversed) i = i.sub(difference);
  return {i.unsqueeze(1), of.kv_position.unsqueeze(0)};
}

at::Tensor MaskRule::shown_by_slices() const {
  const at::Tensor i = places.q_position.unsqueeze(1);
  const at::Tensor j = places.kv_position.unsqueeze(0);
  at::Tensor shown = i.lt(0).logical_and(j.lt(0));
  for (const auto& [queries, keys, type] : slices) {
    const auto is_in = [](const at::Tensor& at, const Interval& range, std::int64_t shift) {
      return at.ge(range.begin).logical_and(at.lt(range.end + shift));
    };
    at::Tensor pairs = is_in(i, queries, slice_query_shift).logical_and(is_in(j, keys, slice_key_shift));
    const bool both = type == SliceType::bicausal;
    const bool opposite = std::ranges::find(opposite_corners, type) != opposite_corners.end();
    const std::int64_t upper_left = keys.begin - queries.begin;
    const std::int64_t lower_right = keys.end - queries.end;
    if (both || type == SliceType::causal) {
      pairs = pairs.logical_and(j.sub(i).le(opposite ? upper_left : lower_right));
    }
    if (both || type == SliceType::inverse_causal) {
      pairs = pairs.logical_and(j.sub(i).ge(opposite ? lower_right : upper_left));
    }
    shown = shown.logical_or(pairs);
  }
  return shown;
}

at::Tensor MaskRule::times() const {
  at::Tensor seen = valid_pairs().logical_and(keys_that_count.unsqueeze(0));
  if (borders) seen = seen.logical_and(places.q_sequence.unsqueeze(1).eq(places.kv_sequence.unsqueeze(0)));
  if (causal) {
    const auto [i, j] = diagonal_of(places);
    seen = seen.logical_and(j.sub(i).le(causal_edge));
  }
  const auto [wi, wj] = diagonal_of(window_places.value_or(places));
  if (window[0]) seen = seen.logical_and(wi.sub(wj).le(*window[0]));
  if (window[1]) seen = seen.logical_and(wj.sub(wi).le(*window[1]));
  if (chunk > 0) {
    const auto [i, j] = diagonal_of(places);
    const at::Tensor position = chunk_of_diagonal ? i : places.q_position.unsqueeze(1);
    const at::Tensor begin = at::div(position.sub(chunk_query_shift), chunk, "floor").mul(chunk);
    seen = seen.logical_and(j.ge(begin.add(chunk_first_shift))).logical_and(j.lt(begin.add(chunk + chunk_end_shift)));
  }
  if (!slices.empty()) seen = seen.logical_and(shown_by_slices());
  return seen.to(at::kDouble);
}

void Subject::mask(std::string id, std::string says, std::function<void(MaskRule&)> change) {
  pass(std::move(id), std::move(says), [change = std::move(change)](const DenseProblem& dense, Pass& pass) {
    MaskRule rule(dense);
    change(rule);
    pass.times = rule.times();
  });
}

}  // namespace cp_pool::diagnosis
