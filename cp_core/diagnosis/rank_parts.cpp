#include "cp_core/diagnosis/rank_parts.h"

#include <algorithm>

#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cases/comm_facts.h"

namespace cp_pool::diagnosis {

namespace {

Parts steps_as_parts(const DenseProblem& dense, const Ring& ring, bool own_last) {
  const at::Tensor step = step_of_pairs(dense, ring).sub(own_last ? 1 : 0).remainder(ring.size);
  Parts parts{.what = own_last ? "one part per step of the ring, own keys last" : "one part per step of the ring",
              .of_pair = step,
              .count = ring.size};
  const at::Tensor other = step.ne(own_last ? ring.size - 1 : 0);
  const at::Tensor half = dense.kv_rows.half.unsqueeze(0);
  if (!half.any().item<bool>()) return parts;
  const at::Tensor stretch = stretch_of_rows(dense.kv_rows).unsqueeze(0);
  for (const at::Tensor& second : {half, stretch}) {
    if (second.is_same(stretch) && stretch.equal(half)) continue;
    for (const at::Tensor& cut : {second, second.mul(other)}) parts.finer.push_back(step.mul(2).add(cut));
  }
  return parts;
}

using Member = at::Tensor WholeResults::*;

// The squared distance of each row to what the ranks returned; undefined if a rank returned none. A NaN or infinity
// counts as very far, unless both values are the same.
at::Tensor distance_to_given(const DenseProblem& dense, const WholeResults& results, Member member) {
  constexpr double kFar = 1e30;
  const at::Tensor whole = joined_rows(dense.observation->results, member);
  const at::Tensor& predicted = results.*member;
  if (!whole.defined()) return {};
  const at::Tensor given = whole.index_select(0, dense.side_of(member)->row);
  if (given.sizes() != predicted.sizes()) return {};
  const at::Tensor same = given.eq(predicted).logical_or(given.isnan().logical_and(predicted.isnan()));
  return given.sub(predicted).square().nan_to_num(kFar, kFar).masked_fill(same, 0.0).flatten(1).sum(1);
}

// The results of the forward, and the gradient `by`.
WholeResults results_of(const SimulatedStep& model, Member by) {
  const Forward forward = run_forward(model);
  WholeResults results = forward.results;
  if (is_of_forward(by)) return results;
  const Backward backward = run_backward(model, forward);
  if (by == &WholeResults::dq) results.dq = sum_dq(model, backward);
  if (by == &WholeResults::dk) results.dk = sum_dk_dv(model, backward, model.dense->kv_rows.row).first;
  return results;
}

}  // namespace

std::vector<Ring> rings_of(const DenseProblem& dense) {
  std::vector<Ring> rings;
  for (const int of_place : {inner_ranks(dense.c()), 1}) {
    if (of_place > 0) rings.push_back({.size = dense.ranks / of_place, .of_place = of_place});
  }
  return rings;
}

at::Tensor steps_of_ranks(const DenseProblem& dense, const Ring& ring) {
  const at::Tensor ranks = at::arange(dense.ranks, at::kLong).unsqueeze(1);
  return ring.at(ranks).sub(ring.at(dense.kv_rows.rank)).remainder(ring.size);
}

at::Tensor step_of_pairs(const DenseProblem& dense, const Ring& ring) {
  return steps_of_ranks(dense, ring).index_select(0, dense.q_rows.rank);
}

at::Tensor rows_at_same_place(const Side& side, int ranks, const std::function<int(int rank, int owner)>& source) {
  const at::Tensor row = at::arange(side.count(), at::kLong);
  const std::int64_t of_a_rank = std::max<std::int64_t>(1, side.count() / ranks);
  if (side.count() % ranks != 0 || !side.rank.equal(row.div(of_a_rank, "floor"))) return {};
  const at::Tensor sequence = side.sequence.view({ranks, -1});
  if (!sequence.eq(sequence[0]).all().item<bool>()) return {};
  std::vector<std::int64_t> sources;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int owner = 0; owner < ranks; ++owner) sources.push_back(source(rank, owner));
  }
  const at::Tensor from = index_tensor(sources).view({ranks, ranks}).index_select(1, side.rank);
  return from.mul(of_a_rank).add(row.remainder(of_a_rank));
}

at::Tensor order_in_sequences(const Side& side) {
  const at::Tensor place = side.sequence.mul(side.position.max().add(2)).add(side.position);
  return place.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/false).argsort();
}

at::Tensor stretch_of_rows(const Side& side) {
  const auto step = [](const at::Tensor& of_rows) { return of_rows.sub(of_rows.roll(1)); };
  const at::Tensor goes_on = side.row.ne(0).logical_and(step(side.rank).eq(0)).logical_and(step(side.sequence).eq(0));
  const at::Tensor jumps = goes_on.logical_and(step(side.position).ne(1)).cumsum(0);
  const at::Tensor before = std::get<0>(jumps.masked_fill(goes_on, 0).cummax(0));
  return jumps.gt(before).to(at::kLong);
}

std::vector<Parts> parts_of(const DenseProblem& dense, bool with_own_last) {
  std::vector<Parts> all;
  for (const Ring& ring : rings_of(dense)) {
    if (ring.size == 1) continue;
    const at::Tensor step = step_of_pairs(dense, ring);
    all.push_back(steps_as_parts(dense, ring, /*own_last=*/false));
    if (with_own_last) all.push_back(steps_as_parts(dense, ring, /*own_last=*/true));
    if (ring.size > 2) {
      all.push_back(
          {.what = "one part of a rank's own keys, one of all other keys", .of_pair = step.clamp_max(1), .count = 2});
    }
    const at::Tensor owner = ring.at(dense.kv_rows.rank).unsqueeze(0).expand_as(step).contiguous();
    all.push_back({.what = "one part per rank of keys, in order", .of_pair = owner, .count = ring.size});
  }
  return all;
}

HeadMap mapped(std::int64_t count, const std::function<std::int64_t(std::int64_t)>& to) {
  HeadMap map;
  for (std::int64_t h = 0; h < count; ++h) map.push_back(to(h));
  return map;
}

std::set<std::int64_t> block_counts(const DenseProblem& dense, std::int64_t heads) {
  std::set<std::int64_t> counts{dense.ranks, head_ranks(dense.c())};
  std::erase_if(counts, [heads](std::int64_t count) { return count < 2 || heads % count != 0; });
  return counts;
}

std::vector<WrongHeads> exchanged_heads(std::int64_t count, std::int64_t blocks) {
  const std::int64_t block = count / blocks;
  return {{.says = "blocks of heads are in reverse order",
           .of = mapped(count, [=](std::int64_t h) { return (blocks - 1 - h / block) * block + h % block; })},
          {.says = "each block of heads is in the place of the previous block",
           .of = mapped(count, [=](std::int64_t h) { return (h + block) % count; })},
          {.says = "each block of heads is in the place of the next block",
           .of = mapped(count, [=](std::int64_t h) { return (h + count - block) % count; })},
          {.says = "heads are dealt out one by one instead of in blocks",
           .of = mapped(count, [=](std::int64_t h) { return h % block * blocks + h / block; })},
          {.says = "heads that were dealt out one by one are put together as blocks",
           .of = mapped(count, [=](std::int64_t h) { return h % blocks * block + h / blocks; })}};
}

std::vector<WrongHeads> misplaced_heads(const DenseProblem& dense, const std::string& what) {
  const std::int64_t heads = dense.c().heads;
  std::vector<WrongHeads> all;
  std::set<HeadMap> known{mapped(heads, std::identity())};
  const auto add = [&](const std::string& says, const HeadMap& of) {
    if (known.insert(of).second) all.push_back({.says = fmt::format("{} are misplaced: {}", what, says), .of = of});
  };
  for (const std::int64_t blocks : block_counts(dense, heads)) {
    add("every block of heads has those of the first block",
        mapped(heads, [=](std::int64_t h) { return h % (heads / blocks); }));
    for (const WrongHeads& one : exchanged_heads(heads, blocks)) add(one.says, one.of);
  }
  add("every head has that of head 0", mapped(heads, [](std::int64_t) { return 0; }));
  add("heads are in reverse order", mapped(heads, [=](std::int64_t h) { return heads - 1 - h; }));
  return all;
}

std::vector<QueryShares> incomplete_shares(int ranks) {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor whole = at::ones({ranks, ranks}, options);
  const at::Tensor own = at::eye(ranks, options);
  std::vector<QueryShares> all{{.says = "counts only the rank's own queries", .counts = own},
                               {.says = "leaves out the rank's own queries", .counts = whole.sub(own)}};
  for (int rank = 0; rank < ranks; ++rank) {
    at::Tensor without = whole.clone();
    without.select(1, rank).zero_();
    all.push_back({.says = fmt::format("leaves out rank {}'s queries", rank), .counts = without});
    if (ranks > 2) {
      all.push_back({.says = fmt::format("counts only rank {}'s queries", rank), .counts = whole.sub(without)});
    }
  }
  return all;
}

at::Tensor nearest_model(const std::vector<SimulatedStep>& models, Member by) {
  const DenseProblem& dense = *models.front().dense;
  at::Tensor number = at::zeros_like(dense.side_of(by)->row);
  at::Tensor least;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const WholeResults results = results_of(models[i], by);
    at::Tensor distance = at::zeros_like(number, at::kDouble);
    for (const Member member : is_of_forward(by) ? std::vector{by, &WholeResults::lse} : std::vector{by}) {
      const at::Tensor of_member = distance_to_given(dense, results, member);
      if (!of_member.defined()) return at::zeros_like(number);
      distance.add_(of_member);
    }
    const at::Tensor nearer = i == 0 ? distance.isfinite() : distance.lt(least);
    least = i == 0 ? distance : at::where(nearer, distance, least);
    number = number.masked_fill(nearer, static_cast<std::int64_t>(i));
  }
  return number;
}

at::Tensor chosen(const at::Tensor& number, const std::vector<SimulatedStep>& models,
                  at::Tensor SimulatedStep::* member) {
  at::Tensor out = models.front().*member;
  for (std::size_t i = 1; i < models.size(); ++i) {
    out = at::where(number.eq(static_cast<std::int64_t>(i)), models[i].*member, out);
  }
  return out;
}

}  // namespace cp_pool::diagnosis
