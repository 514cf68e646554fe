#include "cp_core/diagnosis/seen_keys.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cp_core/diagnosis/wrong_pairs.h"
#include "cp_core/verify/canonical.h"
#include "cp_core/verify/mask_probe.h"
#include "cp_core/verify/rows.h"

namespace cp_pool::diagnosis {
namespace {

constexpr std::int64_t kMostRows = 4096;
// A key whose weight, relative to that of a seen key, is below this was not seen.
constexpr double kWeighsNothing = 1e-4;

// The value of all elements of K. No mean of rows of V is negative, so if K is read in place of V the output cannot be
// mistaken for a set of keys.
constexpr double kNoValue = -1;

at::Tensor places_of(const GridAxis& axis) {
  std::vector<std::int64_t> places;
  for (const auto& rows : axis.by_rank) {
    for (const verify::LocalRow& row : rows) places.push_back(row.canonical);
  }
  return index_tensor(places);
}

// Which keys each query should see: fp64 [q, kv] of 0 and 1. Padding sees nothing and is not seen.
at::Tensor expected_sight(const Case& c, const SequenceLengths& lengths, const ProbeGrid& grid) {
  const auto problem = verify::canonical_problem(c, lengths);
  at::Tensor expected = at::zeros({grid.q.size(), grid.kv.size()}, at::kDouble);
  std::int64_t first_q = 0;
  std::int64_t first_kv = 0;
  for (std::size_t b = 0; b < lengths.valid_q.size(); ++b) {
    const std::int64_t sq = lengths.valid_q[b];
    const std::int64_t skv = lengths.valid_kv[b];
    expected.narrow(0, first_q, sq).narrow(1, first_kv, skv).copy_(verify::visible_keys(problem, sq, skv, 0, sq));
    first_q += grid.q.lengths[b];
    first_kv += grid.kv.lengths[b];
  }
  return expected;
}

class KeySearch {
 public:
  KeySearch(Questions& questions, const SizedCase& of, bool trusts_lse)
      : questions_(questions),
        of_(of),
        trusts_lse_(trusts_lse),
        grid_(make_grid(of.c, of.lengths, sharding_, questions.ranks())) {}

  SeenKeys find() {
    found_.why_not = ask();
    if (found_.why_not.empty() && questions_.is_rank_0()) read();
    return std::move(found_);
  }

 private:
  // Asks for the weights of all keys, block by block. Returns why nothing can be read, as a sentence.
  std::string ask() {
    const std::int64_t queries = grid_.q.size();
    const std::int64_t keys = grid_.kv.size();
    if (queries == 0 || keys == 0) return "the case has no queries, or no keys";
    if (queries > kMostRows || keys > kMostRows) {
      return fmt::format("the case has {} queries and {} keys, padding included, but at most {} of each can be probed",
                         queries, keys, kMostRows);
    }
    if (!questions_.takes(c_)) return "the implementation skips the case if it has no bias and a vanilla softmax";
    questions_.begin("which keys each query saw");
    const auto options = at::TensorOptions(questions_.judged().device).dtype(verify::scalar_type_of(c_.dtype));
    verify::CanonicalInputs inputs;
    inputs.q = at::zeros({queries, c_.heads, c_.head_dim_qk}, options);
    inputs.k = at::zeros({keys, c_.kv_heads, c_.head_dim_qk}, options).fill_(kNoValue);
    inputs.v = at::zeros({keys, c_.kv_heads, c_.head_dim_v}, options);
    weights_ = at::zeros({c_.heads, queries, keys}, at::kDouble);
    for (std::int64_t first = 0; first < keys; first += c_.head_dim_v) {
      if (!questions_.has_time_for(c_)) return "there was no time for all steps";
      const std::int64_t count = std::min(c_.head_dim_v, keys - first);
      inputs.v.zero_();
      for (std::int64_t s = 0; s < count; ++s) inputs.v.select(0, first + s).select(1, s).fill_(1);
      const verify::Results results = whole(questions_.forward({.c = c_, .lengths = of_.lengths}, grid_, inputs));
      if (!results.out.defined()) return "a rank returned no out, or an out of the wrong shape";
      weights_.narrow(2, first, count).copy_(results.out.narrow(2, 0, count).transpose(0, 1));
      if (first > 0) continue;
      if (results.lse.defined()) lse_ = results.lse.squeeze(2).t();
      const verify::Results again = whole(questions_.forward({.c = c_, .lengths = of_.lengths}, grid_, inputs));
      if (!questions_.agreed(same_bits(results.out, again.out) && same_bits(results.lse, again.lse))) {
        return "the same step gave different bits when it was repeated, so its results cannot be combined with those "
               "of other steps";
      }
    }
    return {};
  }

  // Returns out and lse in the order of the grid; undefined if a rank returned none. Padding is NaN if the
  // implementation promises nothing about it.
  [[nodiscard]] verify::Results whole(const ResultsByRank& by_rank) const {
    // For each row of the grid: the first row of the ranks, one after the other, that holds it.
    const at::Tensor places = places_of(grid_.q);
    const at::Tensor held =
        at::zeros({grid_.q.size()}, at::kLong)
            .scatter_reduce(0, places, at::arange(places.numel(), at::kLong), "amin", /*include_self=*/false);
    verify::Results all;
    for (const auto member : {&verify::Results::out, &verify::Results::lse}) {
      const at::Tensor rows = joined_rows(by_rank, member);
      if (!rows.defined()) continue;
      all.*member = rows.index_select(0, held);
      for (std::int64_t i = 0; i < grid_.q.size() && !sharding_.judges_padding; ++i) {
        if (grid_.q.row(i).padding) (all.*member)[i].fill_(verify::kNaN);
      }
    }
    return all;
  }

  void read() {
    found_.q_places = places_of(grid_.q);
    found_.kv_places = places_of(grid_.kv);
    found_.expected = expected_sight(c_, of_.lengths, grid_);
    const double tolerance = weight_tolerance(c_.dtype, c_.cp_size);
    std::vector<Reading> heads;
    std::int64_t head = 0;
    for (std::int64_t h = c_.heads; h-- > 0;) {
      const Reading& one =
          heads.emplace_back(read_weights(weights_[h], lse_.defined() ? lse_[h] : lse_, tolerance, trusts_lse_));
      const bool wrong = one.times.ne(found_.expected).logical_and(one.times.isnan().logical_not()).any().item<bool>();
      if (wrong || !found_.wrong) head = h;
      found_.wrong = found_.wrong || wrong;
      found_.heads_differ = found_.heads_differ || !same_bits(one.times, heads.front().times);
    }
    const Reading& chosen = heads[static_cast<std::size_t>(c_.heads - 1 - head)];
    found_.times = chosen.times;
    found_.whole_numbers = !chosen.weighs.any().item<bool>();
    tell(chosen, found_.heads_differ ? fmt::format("head {} of {}: ", head, c_.heads) : "");
  }

  void tell(const Reading& reading, const std::string& prefix) {
    const SightPairs pairs{
        .grid = grid_, .times = found_.times, .expected = found_.expected, .weighs = reading.weighs, .prefix = prefix};
    if (found_.wrong) {
      found_.pairs = find_wrong_pairs(pairs);
      found_.picture = draw_mask(pairs);
    }
    for (const auto& [rows, says] :
         {std::pair{reading.weighs,
                    "the weights of keys are not whole numbers: parts were merged with wrong weights, "
                    "or V was read in the wrong place"},
          {reading.contradicted, "the lse is not the logarithm of the number of keys that out shows"}}) {
      const at::Tensor which = rows.nonzero().flatten();
      if (which.numel() == 0) continue;
      const auto first = which[0].item<std::int64_t>();
      found_.notes.push_back(fmt::format("{}for {} of {} queries, the first of which is {}, {}", prefix, which.numel(),
                                         rows.numel(), queries_text(grid_.q, {first, first}), says));
    }
    if (found_.heads_differ) found_.notes.emplace_back("other heads saw other keys");
  }

  Questions& questions_;
  const SizedCase& of_;
  bool trusts_lse_;
  verify::Sharding sharding_ = questions_.sharding_of(of_.c, of_.lengths);
  Case c_ = verify::mask_probe_case(of_.c, questions_.probe_heads(of_.c));
  ProbeGrid grid_;
  at::Tensor weights_;  // fp64 [heads, q, kv]: elements of out
  at::Tensor lse_;      // fp64 [heads, q]; undefined if the implementation returns none
  SeenKeys found_;
};

}  // namespace

SeenKeys find_seen_keys(Questions& questions, const SizedCase& of, bool trusts_lse) {
  const at::NoGradGuard no_grad;
  return KeySearch(questions, of, trusts_lse).find();
}

Reading read_weights(const at::Tensor& weights, const at::Tensor& lse, double tolerance, bool trusts_lse) {
  const at::Tensor size = weights.abs();
  const at::Tensor seen = size.gt(size.amax(1, /*keepdim=*/true).mul(kWeighsNothing));
  const at::Tensor smallest = size.masked_fill(seen.logical_not(), kInfinity).amin(1, /*keepdim=*/true);
  const at::Tensor count = seen.sum(1).to(at::kDouble);
  const at::Tensor is_mean = weights.sum(1).sub(1.0).abs().le(tolerance);
  const at::Tensor readable = weights.isfinite().all(1);
  const at::Tensor negative = weights.lt(0.0).logical_and(seen).any(1);
  const auto are_numbers = [&](const at::Tensor& times, double within) {
    const at::Tensor number = times.round();
    const at::Tensor near = times.sub(number).abs().le(number.mul(within)).logical_and(number.lt(0.5 / within));
    return times.abs().le(kWeighsNothing).logical_or(near.logical_and(number.ge(1.0))).all(1);
  };
  // Without lse, the numbers are known up to a factor. With an lse that contradicts them, unequal weights may result
  // from a wrong merge.
  at::Tensor times = weights.div(smallest);
  const at::Tensor equal = times.amax(1).le(1 + 2 * tolerance);
  at::Tensor numbers = are_numbers(times, 2 * tolerance);
  numbers = numbers.logical_and(lse.defined() ? equal : equal.logical_or(is_mean));
  at::Tensor factor = count;  // of weights that are no whole numbers
  at::Tensor contradicted = at::zeros_like(numbers);
  if (lse.defined()) {
    const at::Tensor counted = lse.exp();
    const at::Tensor by_lse = weights.mul(counted.nan_to_num(0.0, 0.0).unsqueeze(1));
    const at::Tensor number = by_lse.round().sum(1);
    // Without values for some keys, lse counts more than out shows.
    const at::Tensor more = counted.sub(number);
    const at::Tensor rounding = number.mul(1e-3).add(0.25);
    const at::Tensor fits = are_numbers(by_lse, tolerance)
                                .logical_and(more.ge(rounding.neg()))
                                .logical_and(number.gt(0.0).logical_or(count.eq(0.0)))
                                .logical_and(counted.isfinite());
    const at::Tensor exact = fits.logical_and(more.le(rounding));
    // Only lse can show that a query saw all of its keys several times. It is believed only if it is proved right for
    // another query and wrong for none: an lse in another base, for example, may give a whole number of keys by chance.
    const at::Tensor several = exact.logical_and(by_lse.round().amax(1).gt(1.0)).logical_and(equal);
    contradicted = fits.logical_not().logical_and(numbers).logical_and(readable);
    const bool wrong = !trusts_lse || contradicted.logical_and(count.gt(0.0)).any().item<bool>();
    const bool proved =
        exact.logical_and(is_mean).logical_and(number.gt(1.0)).logical_and(several.logical_not()).any().item<bool>();
    contradicted = contradicted.logical_or(several);
    const at::Tensor believed = wrong || !proved ? fits.logical_and(several.logical_not()) : fits;
    times = at::where(believed.unsqueeze(1), by_lse, times);
    numbers = numbers.logical_or(fits);
    factor =
        at::where(is_mean.logical_or(counted.isfinite().logical_not()).logical_or(counted.eq(0.0)), count, counted);
  }
  const at::Tensor whole = times.round().masked_fill(times.le(kWeighsNothing), 0.0);
  times = at::where(numbers.unsqueeze(1), whole, weights.mul(factor.unsqueeze(1)));
  const at::Tensor unknown = readable.logical_not().logical_or(negative);
  return {.times = times.masked_fill_(unknown.unsqueeze(1), verify::kNaN),
          .weighs = numbers.logical_or(readable.logical_not()).logical_not().logical_or(negative),
          .contradicted = contradicted.logical_and(unknown.logical_not())};
}

double weight_tolerance(DType dtype, int ranks) {
  constexpr double kOfFp32 = 0x1p-9;
  const double roundings = 4.0 + ranks;
  return std::max(kOfFp32, roundings * verify::unit_roundoff(dtype));
}

Hypotheses seen_keys_hypotheses(const SeenKeys& seen, const at::Tensor& wrong_queries) {
  if (!seen.why_not.empty() || !seen.wrong || !seen.whole_numbers || seen.heads_differ) return {};
  std::string says = fmt::format(
      "{} pairs of a query and a key are missing, and {} are in excess (not expected, or seen more than once)",
      seen.pairs.missing_pairs, seen.pairs.excess_pairs);
  const auto& largest = seen.pairs.missing.empty() ? seen.pairs.excess : seen.pairs.missing;
  if (!largest.empty()) says += ": " + largest.front().text;
  // Queries whose keys are unknown saw what they should, or none; queries with right results may see their keys where
  // they are asked for.
  const auto of_rows = [&](const at::Tensor& times) {
    return times.index_select(0, seen.q_places).index_select(1, seen.kv_places);
  };
  const at::Tensor known = of_rows(at::where(seen.times.isnan(), seen.expected, seen.times));
  Hypotheses all;
  for (const at::Tensor& times : {known, at::where(wrong_queries.unsqueeze(1), known, of_rows(seen.expected)),
                                  of_rows(seen.times.nan_to_num(0.0))}) {
    all.push_back({.id = "wrong_keys_seen",
                   .says = says,
                   .pass =
                       [times](const DenseProblem& dense, Pass& pass) {
                         pass.times =
                             times.index_select(0, dense.q_rows.row).masked_fill(dense.kv_rows.copy.unsqueeze(0), 0.0);
                       },
                   .of_mask = true});
  }
  return all;
}

}  // namespace cp_pool::diagnosis
