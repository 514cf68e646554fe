// Mistakes in the sink of the softmax and in its gradient.
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include <ATen/ops/eye.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cases/comm_facts.h"
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
    const std::int64_t heads = c_.heads;
    std::set<std::vector<std::int64_t>> seen;
    const auto take = [&](const std::string& says, const std::function<std::int64_t(std::int64_t)>& from) {
      std::vector<std::int64_t> map;
      map.reserve(static_cast<std::size_t>(heads));
      for (std::int64_t h = 0; h < heads; ++h) map.push_back(from(h));
      if (!seen.insert(map).second) return;
      model(id, says, [map](Model& model) { model.forward.sink_head = model.backward.sink_head = map; });
      // The gradient is that of a correct sink.
      model(id, says + ", but the gradient of the sink is right",
            [map](Model& model) { model.forward.sink_head = map; });
    };
    seen.insert(Model(world_).forward.sink_head);
    for (const int blocks : {head_ranks(c_), world_.ranks}) {
      if (blocks < 2 || heads % blocks != 0) continue;
      const std::int64_t block = heads / blocks;
      take("every block of heads has the sinks of the first block", [=](std::int64_t h) { return h % block; });
      take("each block of heads has the sinks of the next block", [=](std::int64_t h) { return (h + block) % heads; });
      take("each block of heads has the sinks of the previous block",
           [=](std::int64_t h) { return (h + heads - block) % heads; });
      take("blocks of heads have their sinks in reverse order",
           [=](std::int64_t h) { return (blocks - 1 - h / block) * block + h % block; });
      take("sinks are distributed round-robin instead of in blocks",
           [=](std::int64_t h) { return h % block * blocks + h / block; });
    }
    take("every head has the sink of head 0", [](std::int64_t) { return 0; });
    take("sinks are in reverse order", [=](std::int64_t h) { return heads - 1 - h; });
  }

  void share(const std::string& says, const at::Tensor& shares) {
    model(
        "dsink_share_missing", says, [shares](Model& model) { model.shares_dsink = shares; }, Hypothesis::Level::sums);
  }

  void gradient() {
    const std::int64_t ranks = world_.ranks;
    const auto options = at::TensorOptions().dtype(at::kDouble);
    const at::Tensor all_ranks = at::ones({ranks, ranks}, options);
    model(
        "dsink_zero", "the gradient of the sink is 0",
        [](Model& model) { model.shares_dsink = at::zeros_like(model.shares_dsink); }, Hypothesis::Level::sums);
    if (ranks == 1) return;
    share("the gradient of the sink counts only the rank's own queries", at::eye(ranks, options));
    share("the gradient of the sink leaves out the rank's own queries", all_ranks.sub(at::eye(ranks, options)));
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      at::Tensor without = all_ranks.clone();
      without.select(1, rank).zero_();
      share(fmt::format("the gradient of the sink leaves out rank {}'s queries", rank), without);
      if (ranks > 2)
        share(fmt::format("the gradient of the sink counts only rank {}'s queries", rank), all_ranks.sub(without));
    }
  }
};

}  // namespace

Hypotheses sink_hypotheses(const World& world, const Symptoms& symptoms) {
  return Sinks(world, symptoms).all();
}

}  // namespace cp_pool::diagnosis
