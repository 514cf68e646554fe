// Mistakes in what the softmax takes: the scale of scores and their range, the sink and its gradient.
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/rank_parts.h"

namespace cp_pool::diagnosis {
namespace {

class SoftmaxInputs : Subject {
 public:
  using Subject::Subject;

  Hypotheses all() {
    scales();
    if (world_.sink.defined()) sinks();
    return std::move(all_);
  }

 private:
  void scaled(std::string id, std::string says, double scale) {
    pass(std::move(id), std::move(says), [scale](const World&, Pass& pass) { pass.scale = scale; });
  }

  void scales() {
    const double scale = world_.problem.scale();
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
           [least](const World&, Pass& pass) { pass.least_score = least; });
    }
  }

  void sinks() {
    model("sink_missing", "the sink does not join the softmax", [](Model& model) { model.sink_times = 0; });
    std::set<int> counts{2, world_.ranks, head_ranks(c_)};
    if (head_ranks(c_) > 0) counts.insert(world_.ranks / head_ranks(c_));
    for (const int count : counts) {
      if (count < 2) continue;
      const std::string times = count == 2 ? "twice" : fmt::format("{} times", count);
      model("sink_repeated", fmt::format("the sink joins the softmax {}", times),
            [count](Model& model) { model.sink_times = count; });
    }
    values();
    of_other_heads();
    if (world_.problem.has_dsink() && symptoms_.fails("dsink")) gradient();
  }

  void other_value(std::string says, std::function<at::Tensor(const at::Tensor&)> change) {
    model("sink_value_wrong", std::move(says), [change = std::move(change)](Model& model) {
      if (model.world->sink.defined()) model.sink = change(model.world->sink);  // the mask probe has none
    });
  }

  void values() {
    if (c_.softmax == SoftmaxType::off_by_one) {
      other_value("the logit of the off-by-one softmax is 1, not 0",
                  [](const at::Tensor& sink) { return at::full_like(sink, 1.0); });
      return;
    }
    other_value("the sink is scaled like a score",
                [scale = world_.problem.scale()](const at::Tensor& sink) { return sink.mul(scale); });
    other_value("the sink is 0, as in an off-by-one softmax",
                [](const at::Tensor& sink) { return at::zeros_like(sink); });
    other_value("the sink has the wrong sign", [](const at::Tensor& sink) { return sink.neg(); });
  }

  void of_other_heads() {
    if (c_.softmax != SoftmaxType::learnable) return;
    const char* const id = "sink_of_other_heads";
    for (const WrongHeads& map : misplaced_heads(world_, "the sinks")) {
      model(id, map.says, [of = map.of](Model& model) { model.forward.sink_head = model.backward.sink_head = of; });
      model(id, map.says + ", but the gradient of the sink is right",
            [of = map.of](Model& model) { model.forward.sink_head = of; });
    }
  }

  void gradient() {
    sums("dsink_zero", "the gradient of the sink is 0",
         [](Model& model) { model.shares_dsink = at::zeros_like(model.shares_dsink); });
    if (world_.ranks == 1) return;
    for (const QueryShares& shares : incomplete_shares(world_.ranks)) {
      sums("dsink_share_missing", "the gradient of the sink " + shares.says,
           [counts = shares.counts](Model& model) { model.shares_dsink = counts; });
    }
  }
};

}  // namespace

Hypotheses softmax_hypotheses(const World& world, const Symptoms& symptoms) {
  return SoftmaxInputs(world, symptoms).all();
}

}  // namespace cp_pool::diagnosis
