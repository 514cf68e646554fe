// Mistakes in which scores count in max_logit, recognised by the values that it has instead.
#include <cmath>
#include <string>
#include <vector>

#include <ATen/ops/full.h>

#include "cp_core/diagnosis/bench.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/operands.h"

namespace cp_pool::diagnosis {
namespace {

// Whether only max_logit is wrong, and each wrong value is larger (or smaller) than it should be and one of `others` of
// its head, [heads, values]. NaN counts as larger.
bool are_among(const Bench& bench, bool larger, const at::Tensor& others) {
  if (bench.failing() != std::vector<std::string>{"max_logit"}) return false;
  for (const Given& given : bench.fits().given()) {
    if (given.member != &verify::Results::max_logit) continue;
    const at::Tensor wrong = bench.fits().errors(given).gt(1.0).nonzero();
    const at::Tensor bound = given.baseline.mul(verify::kAllowedBaselines).add(given.floor);
    for (std::int64_t i = 0; i < wrong.size(0); ++i) {
      const auto rank = wrong[i][0].item<std::int64_t>();
      const auto head = wrong[i][1].item<std::int64_t>();
      const auto value = given.value[rank][head][0].item<double>();
      const auto right = given.right[rank][head][0].item<double>();
      if (larger ? value <= right : !(value < right)) return false;
      const at::Tensor near = std::isfinite(value) ? others[head].sub(value).abs().le(bound[rank][head])
                              : std::isnan(value)  ? others[head].isnan()
                                                   : others[head].eq(value);
      if (!near.any().item<bool>()) return false;
    }
  }
  return true;
}

// [heads, pairs]: the scores of the pairs that the mask hides, or of those that it shows; minus infinity for the
// others.
at::Tensor scores_of(const Bench& bench, bool hidden) {
  const Model right(bench.world());
  at::Tensor scores = run_forward(right).scores;
  const at::Tensor poisoned = Operands(bench.world(), right.forward, /*absolute=*/false).poisoned_pairs();
  if (poisoned.defined()) scores.masked_fill_(poisoned, std::nan(""));
  // A score of 0 is that of padding with zeros, which is another mistake if there is no padding.
  if (hidden) scores.masked_fill_(scores.eq(0.0), -kInfinity);
  return scores.masked_fill_(right.forward.times.ne(0.0).eq(hidden), -kInfinity).flatten(1);
}

}  // namespace

Hypotheses max_logit_hypotheses(const World& world, const Symptoms& symptoms) {
  if (!symptoms.fails("max_logit")) return {};
  const auto heads = [](const Bench& bench) { return at::full({bench.world().c().heads, 1}, 0.0, at::kDouble); };
  Hypotheses all{{.id = "max_logit_counts_zero",
                  .says = "max_logit includes a score of 0 that no pair has",
                  .shows = [=](const Bench& bench) { return are_among(bench, true, heads(bench)); }},
                 {.id = "max_logit_of_hidden_keys",
                  .says = "max_logit includes scores of pairs that the mask hides",
                  .shows = [](const Bench& bench) { return are_among(bench, true, scores_of(bench, true)); }},
                 {.id = "max_logit_not_reduced",
                  .says = "max_logit is the maximum over some of the queries or keys only, such as the rank's own",
                  .shows = [](const Bench& bench) { return are_among(bench, false, scores_of(bench, false)); }}};
  if (world.sink.defined()) {
    all.push_back({.id = "max_logit_of_sink", .says = "max_logit includes the sink", .shows = [](const Bench& bench) {
                     // The mask probe has no sink.
                     const at::Tensor& sink = bench.world().sink;
                     return sink.defined() && are_among(bench, true, sink.unsqueeze(1));
                   }});
  }
  return all;
}

}  // namespace cp_pool::diagnosis
