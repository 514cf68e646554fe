// Mistakes in what the softmax takes and in max_logit: the scale of scores and their range, the sink and its gradient.
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/hypothesis_check.h"
#include "cp_core/diagnosis/rank_parts.h"

namespace cp_pool::diagnosis {
namespace {

// Whether only max_logit is wrong, and each wrong value is larger (or smaller) than it should be and one of `others` of
// its head, [heads, values]; undefined if there are none. NaN counts as larger.
bool are_among(const HypothesisCheck& check, bool larger, const at::Tensor& others) {
  if (!others.defined() || check.failing() != std::vector<std::string>{"max_logit"}) return false;
  for (const Given& given : check.fits().given()) {
    if (given.member != &verify::Results::max_logit) continue;
    const at::Tensor wrong = check.fits().errors(given).gt(1.0).nonzero();
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
at::Tensor scores_of(const HypothesisCheck& check, bool hidden) {
  const SimulatedStep right(check.dense());
  at::Tensor scores = run_forward(right).scores;
  const at::Tensor poisoned = Operands(check.dense(), right.forward, /*absolute=*/false).poisoned_pairs();
  if (poisoned.defined()) scores.masked_fill_(poisoned, std::nan(""));
  // A score of 0 is that of padding with zeros, which is another mistake if there is no padding.
  if (hidden) scores.masked_fill_(scores.eq(0.0), -kInfinity);
  return scores.masked_fill_(right.forward.times.ne(0.0).eq(hidden), -kInfinity).flatten(1);
}

class SoftmaxInputs : public Subject {
 public:
  SoftmaxInputs(const DenseProblem& dense, const Symptoms& symptoms) : Subject(dense, symptoms) {
    scales();
    if (c_.softcap != 0) softcaps();
    if (dense_.sink.defined()) sinks();
    if (symptoms_.fails("max_logit")) max_logit();
  }

 private:
  void scaled(std::string id, std::string says, double scale) {
    pass(std::move(id), std::move(says), [scale](const DenseProblem&, Pass& pass) { pass.scale = scale; });
  }

  void scales() {
    const double scale = dense_.problem.scale();
    scaled("scale_missing", "scores are not scaled", 1);
    scaled("scale_twice", fmt::format("scores are scaled twice, in all by 1 / {}", c_.head_dim_qk), scale * scale);
    if (c_.head_dim_qk != c_.head_dim_v) {
      scaled("scale_of_head_dim_v",
             fmt::format("the scale is that of head_dim_v, 1 / sqrt({}) instead of 1 / sqrt({})", c_.head_dim_v,
                         c_.head_dim_qk),
             1 / std::sqrt(static_cast<double>(c_.head_dim_v)));
    }
    for (const double least : {0.0, -1.0, -5.0, -10.0, -20.0, -30.0, -50.0, -80.0, -100.0}) {
      pass("scores_clipped", fmt::format("scores below {:g} are raised to {:g}", least, least),
           [least](const DenseProblem&, Pass& pass) { pass.least_score = least; });
    }
  }

  void softcaps() {
    const double scale = dense_.problem.scale();
    pass("softcap_missing", "scores are not capped", [](const DenseProblem&, Pass& pass) { pass.softcap = 0; });
    pass("softcap_order", "scores are capped before they are scaled",
         [scale](const DenseProblem&, Pass& pass) { pass.softcap *= scale; });
    if (dense_.bias.defined()) {
      pass("softcap_order", "scores are capped with their bias",
           [](const DenseProblem&, Pass& pass) { pass.cap_has_bias = true; });
    }
    if (!c_.training) return;
    backward("softcap_gradient_missing", "the gradient of a score lacks the derivative of the softcap",
             [](SimulatedStep& model) { model.slope_missing = true; });
  }

  void sinks() {
    model("sink_missing", "the sink does not join the softmax", [](SimulatedStep& model) { model.sink_times = 0; });
    std::set<int> counts{2, dense_.ranks, head_ranks(c_)};
    if (head_ranks(c_) > 0) counts.insert(dense_.ranks / head_ranks(c_));
    for (const int count : counts) {
      if (count < 2) continue;
      const std::string times = count == 2 ? "twice" : fmt::format("{} times", count);
      model("sink_repeated", fmt::format("the sink joins the softmax {}", times),
            [count](SimulatedStep& model) { model.sink_times = count; });
    }
    if (c_.softmax == SoftmaxType::off_by_one) {
      model("sink_value_wrong", "the logit of the off-by-one softmax is 1, not 0", [](SimulatedStep& model) {
        // The mask probe has no sink.
        if (model.dense->sink.defined()) model.sink = at::full_like(model.dense->sink, 1.0);
      });
    }
    of_other_heads();
    if (dense_.problem.has_dsink() && symptoms_.fails("dsink")) gradient();
  }

  void of_other_heads() {
    if (c_.softmax != SoftmaxType::learnable) return;
    const char* const id = "sink_of_other_heads";
    for (const WrongHeads& map : misplaced_heads(dense_, "the sinks")) {
      model(id, map.says,
            [of = map.of](SimulatedStep& model) { model.forward.sink_head = model.backward.sink_head = of; });
      model(id, map.says + ", but the gradient of the sink is right",
            [of = map.of](SimulatedStep& model) { model.forward.sink_head = of; });
    }
  }

  void gradient() {
    sums("dsink_zero", "the gradient of the sink is 0",
         [](SimulatedStep& model) { model.shares_dsink = at::zeros_like(model.shares_dsink); });
    if (dense_.ranks == 1) return;
    for (const QueryShares& shares : incomplete_shares(dense_.ranks)) {
      sums("dsink_share_missing", "the gradient of the sink " + shares.says,
           [counts = shares.counts](SimulatedStep& model) { model.shares_dsink = counts; });
    }
  }

  void max_logit() {
    const auto is_among = [this](const char* id, const char* says, bool larger,
                                 std::function<at::Tensor(const HypothesisCheck&)> others) {
      shows(id, says, [larger, others = std::move(others)](const HypothesisCheck& check) {
        return are_among(check, larger, others(check));
      });
    };
    is_among("max_logit_counts_zero", "max_logit includes a score of 0 that no pair has", true,
             [](const HypothesisCheck& check) { return at::full({check.dense().c().heads, 1}, 0.0, at::kDouble); });
    is_among("max_logit_of_hidden_keys", "max_logit includes scores of pairs that the mask hides", true,
             [](const HypothesisCheck& check) { return scores_of(check, /*hidden=*/true); });
    is_among("max_logit_not_reduced",
             "max_logit is the maximum over some of the queries or keys only, such as the rank's own", false,
             [](const HypothesisCheck& check) { return scores_of(check, /*hidden=*/false); });
    is_among("max_logit_of_sink", "max_logit includes the sink", true, [](const HypothesisCheck& check) {
      return check.dense().sink.defined() ? check.dense().sink.unsqueeze(1) : at::Tensor();
    });
  }
};

}  // namespace

Hypotheses softmax_hypotheses(const DenseProblem& dense, const Symptoms& symptoms) {
  return SoftmaxInputs(dense, symptoms).all();
}

}  // namespace cp_pool::diagnosis
