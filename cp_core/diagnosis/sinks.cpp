// Mistakes in the sink of the softmax and in its gradient.
#include <set>
#include <string>
#include <utility>

#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/rank_parts.h"
#include "cp_core/diagnosis/subject.h"

namespace cp_pool::diagnosis {
namespace {

class Sinks : Subject {
 public:
  using Subject::Subject;

  Hypotheses all() {
    if (!world_.sink.defined()) return {};
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
    return std::move(all_);
  }

 private:
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

Hypotheses sink_hypotheses(const World& world, const Symptoms& symptoms) {
  return Sinks(world, symptoms).all();
}

}  // namespace cp_pool::diagnosis
