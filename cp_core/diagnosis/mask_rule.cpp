#include "cp_core/diagnosis/mask_rule.h"

#include <algorithm>

#include <ATen/ops/div.h>
#include <ATen/ops/ones.h>

namespace cp_pool::diagnosis {
namespace {

at::Tensor of_sequences(const std::vector<std::int64_t>& lengths, const at::Tensor& sequences) {
  return index_tensor(lengths).index_select(0, sequences.clamp_min(0));
}

}  // namespace

MaskRule::MaskRule(const World& world) {
  const Case& c = world.c();
  causal = c.causal;
  for (std::size_t side = 0; side < window.size(); ++side) {
    limited.at(side) = c.window.at(side) >= 0;
    window.at(side) = c.window.at(side);
  }
  chunk = c.chunk;
  places = {.q_sequence = world.q_rows.sequence,
            .q_position = world.q_rows.position,
            .kv_sequence = world.kv_rows.sequence,
            .kv_position = world.kv_rows.position};
  valid_q = world.lengths().valid_q;
  valid_kv = world.lengths().valid_kv;
  padded_q = world.lengths().padded_q;
  padded_kv = world.lengths().padded_kv;
}

at::Tensor MaskRule::times() const {
  const at::Tensor q_length = of_sequences(padding_queries ? padded_q : valid_q, places.q_sequence);
  const at::Tensor kv_length = of_sequences(padding_keys ? padded_kv : valid_kv, places.kv_sequence);
  const auto inside = [](const at::Tensor& position, const at::Tensor& length) {
    return position.ge(0).logical_and(position.lt(length));
  };
  at::Tensor seen = inside(places.q_position, q_length)
                        .unsqueeze(1)
                        .logical_and(inside(places.kv_position, kv_length).unsqueeze(0));
  if (borders) seen.logical_and_(places.q_sequence.unsqueeze(1).eq(places.kv_sequence.unsqueeze(0)));

  const at::Tensor difference =
      of_sequences(valid_kv, places.q_sequence).sub(of_sequences(valid_q, places.q_sequence));
  const at::Tensor position = places.q_position.unsqueeze(1);
  at::Tensor i = position;
  if (diagonal == Diagonal::bottom_right) i = position.add(difference.unsqueeze(1));
  if (diagonal == Diagonal::reversed) i = position.sub(difference.unsqueeze(1));
  i = i.add(shift);
  const at::Tensor j = places.kv_position.unsqueeze(0);
  if (causal) seen.logical_and_(j.sub(i).le(causal_edge));
  if (limited[0]) seen.logical_and_(i.sub(j).le(window[0]));
  if (limited[1]) seen.logical_and_(j.sub(i).le(window[1]));
  if (chunk > 0) {
    const at::Tensor begin =
        at::div((chunk_of_diagonal ? i : position).sub(chunk_query_shift), chunk, "floor").mul(chunk);
    seen.logical_and_(j.ge(begin.add(chunk_first_shift))).logical_and_(j.lt(begin.add(chunk + chunk_end_shift)));
  }
  return seen.to(at::kDouble);
}

}  // namespace cp_pool::diagnosis
