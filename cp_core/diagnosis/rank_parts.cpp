#include "cp_core/diagnosis/rank_parts.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include <ATen/ops/empty.h>

namespace cp_pool::diagnosis {
namespace {

at::Tensor of_ranks(const std::vector<int>& values, const at::Tensor& ranks) {
  return index_tensor({values.begin(), values.end()}).index_select(0, ranks);
}

const std::int64_t* data_of(const at::Tensor& tensor) {
  return tensor.const_data_ptr<std::int64_t>();
}

}  // namespace

std::vector<Ring> rings_of(const World& world) {
  std::vector<Ring> rings;
  Ring all{.size = world.ranks, .place = std::vector<int>(static_cast<std::size_t>(world.ranks))};
  std::iota(all.place.begin(), all.place.end(), 0);
  rings.push_back(all);
  constexpr int kPair = 2;
  if (world.c().comm == CommType::a2a_p2p && world.ranks % kPair == 0 && world.ranks > kPair) {
    Ring pairs{.size = world.ranks / kPair, .place = all.place};
    for (int& place : pairs.place) place /= kPair;
    rings.insert(rings.begin(), pairs);
  }
  return rings;
}

at::Tensor step_of_pairs(const World& world, const Ring& ring) {
  const at::Tensor queries = of_ranks(ring.place, world.q_rows.rank);
  const at::Tensor keys = of_ranks(ring.place, world.kv_rows.rank);
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
  const std::int64_t count = side.count();
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  const std::int64_t* const sequence = data_of(side.sequence);
  const std::int64_t* const position = data_of(side.position);
  std::ranges::stable_sort(rows, {}, [&](std::int64_t row) { return std::tuple(sequence[row], position[row]); });
  std::vector<std::int64_t> order(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) order[static_cast<std::size_t>(rows[i])] = static_cast<std::int64_t>(i);
  return index_tensor(order);
}

std::vector<Parts> parts_of(const World& world) {
  std::vector<Parts> all;
  for (const Ring& ring : rings_of(world)) {
    if (ring.size == 1) continue;
    const at::Tensor step = step_of_pairs(world, ring);
    const at::Tensor half = world.kv_rows.half.unsqueeze(0);
    all.push_back({.what = "steps of the ring",
                   .of_pair = step,
                   .count = ring.size,
                   .of_chunks = world.kv_rows.half.any().item<bool>() ? step.mul(2).add(half) : at::Tensor()});
    if (ring.size > 2) {
      all.push_back({.what = "steps of the ring, which turns the other way",
                     .of_pair = step.neg().remainder(ring.size),
                     .count = ring.size});
      all.push_back({.what = "the own keys and those of others", .of_pair = step.clamp_max(1), .count = 2});
    }
    const at::Tensor owner = of_ranks(ring.place, world.kv_rows.rank).unsqueeze(0).expand_as(step).contiguous();
    all.push_back({.what = "the keys of each rank in turn", .of_pair = owner, .count = ring.size});
  }
  return all;
}

}  // namespace cp_pool::diagnosis
