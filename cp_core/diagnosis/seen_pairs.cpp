#include "cp_core/diagnosis/seen_pairs.h"

#include <numeric>
#include <vector>

#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

namespace cp_pool::diagnosis {
namespace {

// Maps the rows of a world to the rows of SeenKeys::times: int64; -1 = the row is not there.
at::Tensor rows_in(const std::vector<std::int64_t>& lengths, const Side& side) {
  std::vector<std::int64_t> starts;
  std::exclusive_scan(lengths.begin(), lengths.end(), std::back_inserter(starts), std::int64_t{0});
  const at::Tensor length = index_tensor(lengths).index_select(0, side.sequence);
  const at::Tensor inside = side.position.ge(0).logical_and(side.position.lt(length));
  return at::where(inside, side.position.add(index_tensor(starts).index_select(0, side.sequence)), -1);
}

// unknown_is_none: queries whose keys are unknown saw none; else they saw what they should.
at::Tensor times_in(const SeenKeys& seen, const World& world, bool unknown_is_none) {
  const at::Tensor q = rows_in(seen.q_lengths, world.q_rows);
  const at::Tensor kv = rows_in(seen.kv_lengths, world.kv_rows);
  const at::Tensor known =
      unknown_is_none ? seen.times.nan_to_num(0.0) : at::where(seen.times.isnan(), seen.expected, seen.times);
  const at::Tensor times = known.index_select(0, q.clamp_min(0)).index_select(1, kv.clamp_min(0));
  return times.masked_fill(q.lt(0).unsqueeze(1).logical_or(kv.lt(0).unsqueeze(0)), 0.0);
}

}  // namespace

Hypotheses seen_pairs_hypotheses(const SeenKeys& seen) {
  if (!seen.why_not.empty() || !seen.wrong || !seen.whole_numbers || seen.heads_differ) return {};
  const PairRectangle* largest = nullptr;
  if (!seen.pairs.missing.empty()) largest = &seen.pairs.missing.front();
  if (largest == nullptr && !seen.pairs.excess.empty()) largest = &seen.pairs.excess.front();
  std::string says = fmt::format(
      "{} pairs of a query and a key are missing, and {} are in excess (not expected, or seen more than once)",
      seen.pairs.missing_pairs, seen.pairs.excess_pairs);
  if (largest != nullptr) says += ": " + largest->text;
  Hypotheses all;
  for (const bool unknown_is_none : {false, true}) {
    all.push_back({.id = "wrong_keys_seen",
                   .says = says,
                   .pass = [seen, unknown_is_none](const World& world,
                                                   Pass& pass) { pass.times = times_in(seen, world, unknown_is_none); },
                   .of_mask = true});
    if (!seen.times.isnan().any().item<bool>()) break;
  }
  return all;
}

}  // namespace cp_pool::diagnosis
