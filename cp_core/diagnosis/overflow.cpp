// Exponentials that overflow, or vanish: where implementations differ in what such rows then hold.

#include <ATen/ops/zeros_like.h>

#include "cp_core/diagnosis/bench.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/rank_parts.h"

namespace cp_pool::diagnosis {
namespace {

using verify::Results;

// exp(x) in fp32 overflows above x = 88.72, loses bits below -87.3, and is 0 below -103.97.
constexpr double kMayOverflow = 87.5;
constexpr double kOverflows = 89.5;
constexpr double kMayVanish = -83;
constexpr double kVanishes = -105;
// At least this many rows that must be wrong, and rows that must not, are needed for a decision.
constexpr std::int64_t kRowsToTell = 3;

// bool [q rows, heads]
struct Exposed {
  at::Tensor may;    // the exponential of some score or of some part's lse may leave the range of fp32
  at::Tensor must;   // the exponential of the row's lse leaves it
  at::Tensor parts;  // the row sees keys of several ranks
  at::Tensor times;  // fp64, pairs
};

Exposed exposed_rows(const World& world) {
  const Model right(world);
  const Forward forward = run_forward(right);
  const at::Tensor& times = right.forward.times;
  const at::Tensor seen = forward.scores.masked_fill(times.eq(0.0), -kInfinity);  // [heads, q rows, kv rows]
  const at::Tensor total = seen.logsumexp({-1});
  at::Tensor may = seen.amax(-1).gt(kMayOverflow).logical_or(total.gt(kMayOverflow));
  at::Tensor parts = at::zeros_like(total);
  for (int rank = 0; rank < world.ranks; ++rank) {
    const at::Tensor own = world.kv_rows.rank.eq(rank);
    const at::Tensor of_rank = seen.masked_fill(own.logical_not(), -kInfinity);
    const at::Tensor has_keys = of_rank.amax(-1).gt(-kInfinity);
    for (const std::int64_t half : {0, 1}) {
      const at::Tensor of_half = of_rank.masked_fill(world.kv_rows.half.ne(half), -kInfinity).amax(-1);
      may.logical_or_(of_half.gt(-kInfinity).logical_and(of_half.lt(kMayVanish)));
    }
    parts.add_(has_keys.to(parts.scalar_type()));
  }
  const at::Tensor must = total.gt(kOverflows).logical_or(total.lt(kVanishes));
  return {.may = may.t(), .must = must.logical_and(total.gt(-kInfinity)).t(), .parts = parts.gt(1).t(), .times = times};
}

// bool [kv rows, kv heads]: whether one of these queries sees the key.
at::Tensor keys_of(const at::Tensor& queries, const at::Tensor& times, std::int64_t kv_heads) {
  const at::Tensor by_head = times.t().ne(0.0).to(at::kDouble).matmul(queries.to(at::kDouble));  // [kv rows, heads]
  return by_head.view({by_head.size(0), kv_heads, -1}).sum(-1).gt(0.0);
}

// Whether the wrong rows are exactly the exposed ones, and some of them hold NaN, infinities or only zeros.
bool exposed_are_wrong(const Bench& bench, const Exposed& exposed) {
  const World& world = bench.world();
  if (exposed.must.sum().item<std::int64_t>() < kRowsToTell) return false;
  const at::Tensor keys = keys_of(exposed.may, exposed.times, world.c().kv_heads);
  at::Tensor wrong_queries = at::zeros_like(exposed.may);
  bool extreme = false;
  for (const Given& given : bench.fits().given()) {
    const at::Tensor wrong = bench.fits().errors(given).gt(1.0);
    if (!wrong.any().item<bool>()) continue;
    if (given.member == &Results::max_logit) return false;
    if (given.member == &Results::dbias || given.member == &Results::dsink) continue;
    const bool of_keys = is_of_keys(given.member);
    const at::Tensor& allowed = of_keys ? keys : exposed.may;
    if (wrong.logical_and(allowed.logical_not()).any().item<bool>()) return false;
    const at::Tensor none = given.value.isfinite().all(-1).logical_not().logical_or(given.value.eq(0.0).all(-1));
    extreme = extreme || none.logical_and(wrong).any().item<bool>();
    if (!of_keys) wrong_queries = wrong_queries.logical_or(wrong);
  }
  return extreme && !exposed.must.logical_and(wrong_queries.logical_not()).any().item<bool>();
}

// Whether the wrong rows are exactly those whose exponentials leave the range of fp32.
bool out_of_range(const Bench& bench) {
  Exposed exposed = exposed_rows(bench.world());
  // If the mistake is in the merge, only rows of several parts are wrong. If no row has several parts, it must be in
  // the softmax.
  const at::Tensor merged = exposed.must.logical_and(exposed.parts);
  if (merged.any().item<bool>()) exposed.must = merged;
  // With an offset, every row may be exposed.
  const bool tells =
      bench.world().problem.has_offset() || exposed.may.logical_not().sum().item<std::int64_t>() >= kRowsToTell;
  return tells && exposed_are_wrong(bench, exposed);
}

// Whether the wrong rows are those whose scores all lie far below 0.
bool starts_too_high(const Bench& bench) {
  const World& world = bench.world();
  return world.problem.score_offset < 0 && exposed_are_wrong(bench, exposed_rows(world));
}

}  // namespace

Hypotheses overflow_hypotheses(const World& /*world*/, const Symptoms& /*symptoms*/) {
  return {{.id = "max_not_subtracted",
           .says = "exponentials are taken of scores or of an lse without subtracting the maximum: exactly the rows "
                   "whose exponentials leave the range of fp32 are wrong",
           .shows = out_of_range},
          {.id = "max_starts_too_high",
           .says = "the running maximum of the softmax starts at a finite number instead of minus infinity: the rows "
                   "whose scores all lie far below it are wrong",
           .shows = starts_too_high}};
}

}  // namespace cp_pool::diagnosis
