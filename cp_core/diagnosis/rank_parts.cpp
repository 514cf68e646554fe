#include "cp_core/diagnosis/rank_parts.h"

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/simulated_step.h"

namespace cp_pool::diagnosis {

namespace {

at::Tensor of_ranks(const std::vector<int>& values, const at::Tensor& ranks) {
  return index_tensor({values.begin(), values.end()}).index_select(0, ranks);
}

const std::int64_t* data_of(const at::Tensor& tensor) {
  return tensor.const_data_ptr<std::int64_t>();
}

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

}  // namespace

std::vector<Ring> rings_of(const DenseProblem& dense) {
  std::vector<Ring> rings;
  const int inner = inner_ranks(dense.c());
  for (const int of_place : {inner, 1}) {
    if (of_place == 0) continue;
    Ring& ring = rings.emplace_back(Ring{.size = dense.ranks / of_place, .place = {}});
    for (int rank = 0; rank < dense.ranks; ++rank) ring.place.push_back(rank / of_place);
  }
  return rings;
}

at::Tensor step_of_pairs(const DenseProblem& dense, const Ring& ring) {
  const at::Tensor queries = of_ranks(ring.place, dense.q_rows.rank);
  const at::Tensor keys = of_ranks(ring.place, dense.kv_rows.rank);
  return queries.unsqueeze(1).sub(keys.unsqueeze(0)).remainder(ring.size);
}

at::Tensor rows_at_same_place(const Side& side, int ranks, const std::function<int(int rank, int owner)>& source) {
  const std::int64_t rows = side.first.back();
  for (int rank = 0; rank < ranks; ++rank) {
    if (side.first[static_cast<std::size_t>(rank) + 1] * ranks != rows * (rank + 1)) return {};
  }
  const std::int64_t of_a_rank = rows / ranks;
  const std::int64_t* const sequence = data_of(side.sequence);
  for (std::int64_t row = of_a_rank; row < rows; ++row) {
    if (sequence[row] != sequence[row % of_a_rank]) return {};
  }
  at::Tensor result = at::empty({ranks, rows}, at::kLong);
  auto cells = result.accessor<std::int64_t, 2>();
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto owner = static_cast<int>(row / of_a_rank);
      cells[rank][row] = source(rank, owner) * of_a_rank + row % of_a_rank;
    }
  }
  return result;
}

at::Tensor order_in_sequences(const Side& side) {
  const std::int64_t* const sequence = data_of(side.sequence);
  const std::int64_t* const position = data_of(side.position);
  std::vector<std::int64_t> rows = mapped(side.count(), std::identity());
  std::ranges::stable_sort(rows, {}, [&](std::int64_t row) { return std::tuple(sequence[row], position[row]); });
  return index_tensor(rows).argsort();
}

at::Tensor stretch_of_rows(const Side& side) {
  const std::int64_t* const rank = data_of(side.rank);
  const std::int64_t* const sequence = data_of(side.sequence);
  const std::int64_t* const position = data_of(side.position);
  std::vector<std::int64_t> stretches(static_cast<std::size_t>(side.count()), 0);
  for (std::size_t row = 1; row < stretches.size(); ++row) {
    if (rank[row] != rank[row - 1] || sequence[row] != sequence[row - 1]) continue;
    stretches[row] = position[row] == position[row - 1] + 1 ? stretches[row - 1] : 1;
  }
  return index_tensor(stretches);
}

std::vector<Parts> parts_with_own_last(const DenseProblem& dense) {
  std::vector<Parts> all;
  for (const Ring& ring : rings_of(dense)) {
    if (ring.size > 1) all.push_back(steps_as_parts(dense, ring, /*own_last=*/true));
  }
  return all;
}

std::vector<Parts> parts_of(const DenseProblem& dense) {
  std::vector<Parts> all;
  for (const Ring& ring : rings_of(dense)) {
    if (ring.size == 1) continue;
    const at::Tensor step = step_of_pairs(dense, ring);
    all.push_back(steps_as_parts(dense, ring, /*own_last=*/false));
    if (ring.size > 2) {
      all.push_back(
          {.what = "one part of a rank's own keys, one of all other keys", .of_pair = step.clamp_max(1), .count = 2});
    }
    const at::Tensor owner = of_ranks(ring.place, dense.kv_rows.rank).unsqueeze(0).expand_as(step).contiguous();
    all.push_back({.what = "one part per rank of keys, in order", .of_pair = owner, .count = ring.size});
  }
  return all;
}

HeadMap mapped(std::int64_t count, const std::function<std::int64_t(std::int64_t)>& to) {
  HeadMap map;
  for (std::int64_t h = 0; h < count; ++h) map.push_back(to(h));
  return map;
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
  for (const int blocks : {head_ranks(dense.c()), dense.ranks}) {
    if (blocks < 2 || heads % blocks != 0) continue;
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

namespace {

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

at::Tensor nearest(const std::vector<SimulatedStep>& models,
                   const std::function<WholeResults(const SimulatedStep&)>& results_of,
                   const std::vector<Member>& members) {
  const DenseProblem& dense = *models.front().dense;
  at::Tensor number = at::zeros_like(dense.side_of(members.front())->row);
  at::Tensor least;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const WholeResults results = results_of(models[i]);
    at::Tensor distance = at::zeros_like(number, at::kDouble);
    for (const Member member : members) {
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

}  // namespace

at::Tensor nearest_model(const std::vector<SimulatedStep>& models) {
  return nearest(models, [](const SimulatedStep& model) { return run_forward(model).results; },
                 {&WholeResults::out, &WholeResults::lse});
}

at::Tensor nearest_model_in_dq(const std::vector<SimulatedStep>& models) {
  const auto dq = [](const SimulatedStep& model) {
    WholeResults results;
    results.dq = sum_dq(model, run_backward(model, run_forward(model)));
    return results;
  };
  return nearest(models, dq, {&WholeResults::dq});
}

at::Tensor nearest_model_in_dk(const std::vector<SimulatedStep>& models) {
  const auto gradients = [](const SimulatedStep& model) {
    const Forward forward = run_forward(model);
    WholeResults results = forward.results;
    sum_gradients(model, run_backward(model, forward), /*absolute=*/false, results);
    return results;
  };
  return nearest(models, gradients, {&WholeResults::dk});
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
