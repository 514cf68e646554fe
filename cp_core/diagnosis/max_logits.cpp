// What counts in max_logit.
#include <string>
#include <utility>

#include <ATen/ops/eye.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/mask_rule.h"
#include "cp_core/diagnosis/rank_parts.h"

namespace cp_pool::diagnosis {
namespace {

class MaxLogits {
 public:
  explicit MaxLogits(const World& world) : world_(world), c_(world.c()) {}

  Hypotheses all() {
    add("max_logit_counts_zero", "a score of 0 that no pair has counts in max_logit",
        [](Model& model) { model.max_logit_least = 0; });
    hidden_keys();
    if (world_.sink.defined()) {
      add("max_logit_of_sink", "the sink counts in max_logit", [](Model& model) {
        model.returned = [](const World& world, verify::Results& results) {
          results.max_logit = at::maximum(results.max_logit, world.sink.view({1, -1, 1}));
        };
      });
    }
    if (world_.ranks > 1) not_reduced();
    return std::move(all_);
  }

 private:
  void add(std::string id, std::string says, std::function<void(Model&)> model) {
    all_.push_back({.id = std::move(id), .says = std::move(says), .model = std::move(model)});
  }

  void hide(const std::string& says, std::function<void(const World&, MaskRule&)> change) {
    add("max_logit_of_hidden_keys", says, [change = std::move(change)](Model& model) {
      MaskRule rule(*model.world);
      change(*model.world, rule);
      model.max_logit_times = rule.times();
    });
  }

  void hidden_keys() {
    if (c_.window[0] >= 0 || c_.window[1] >= 0) {
      hide("scores outside the window count in max_logit",
           [](const World&, MaskRule& rule) { rule.limited = {false, false}; });
    }
    if (c_.causal) {
      hide("scores of the keys after a causal query's own count in max_logit",
           [](const World&, MaskRule& rule) { rule.causal = false; });
    }
    if (c_.chunk > 0) {
      hide("scores of other chunks count in max_logit", [](const World&, MaskRule& rule) { rule.chunk = 0; });
    }
    hide("scores of all keys of a sequence count in max_logit, whatever the mask says",
         [](const World&, MaskRule& rule) {
           rule.limited = {false, false};
           rule.causal = false;
           rule.chunk = 0;
         });
    if (c_.batch > 1) {
      hide("scores of other sequences count in max_logit", [](const World&, MaskRule& rule) { rule.borders = false; });
    }
    if (c_.pad_between_seqs) {
      hide("scores of keys at padding positions count in max_logit",
           [](const World&, MaskRule& rule) { rule.padding_keys = true; });
    }
    for (const std::int64_t off : {1, 2}) {
      hide(fmt::format("the {} after the last that a query sees count{} in max_logit", off == 1 ? "key" : "two keys",
                       off == 1 ? "s" : ""),
           [off](const World&, MaskRule& rule) {
             rule.causal_edge = off;
             rule.window[1] += off;
             rule.chunk_end_shift = off;
           });
    }
  }

  void not_reduced() {
    const auto options = at::TensorOptions().dtype(at::kDouble);
    const std::int64_t ranks = world_.ranks;
    const char* const id = "max_logit_not_reduced";
    const at::Tensor own = at::eye(ranks, options);
    add(id, "max_logit is that of the rank's own queries", [own](Model& model) { model.shares_max_logit = own; });
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      at::Tensor without = at::ones({ranks, ranks}, options);
      without.select(1, rank).zero_();
      add(id, fmt::format("max_logit lacks rank {}'s queries", rank),
          [without](Model& model) { model.shares_max_logit = without; });
      if (ranks == 2) continue;
      const at::Tensor alone = at::ones({ranks, ranks}, options).sub(without);
      add(id, fmt::format("max_logit is that of rank {}'s queries", rank),
          [alone](Model& model) { model.shares_max_logit = alone; });
    }
    for (const Ring& ring : rings_of(world_)) {
      const at::Tensor steps = step_of_pairs(world_, ring);
      for (int step = 0; step < ring.size; ++step) {
        const at::Tensor counts = steps.eq(step).to(at::kDouble);
        const std::string whose = step == 0 ? "a rank's own keys" : fmt::format("step {} of the ring", step);
        add(id, fmt::format("max_logit is that of {} alone", whose), [counts](Model& model) {
          model.max_logit_times = model.forward.times.mul(counts.index_select(0, model.world->q_rows.row));
        });
        add(id, fmt::format("max_logit is that of {} alone, and of the rank's own queries", whose),
            [counts, own](Model& model) {
              model.max_logit_times = model.forward.times.mul(counts.index_select(0, model.world->q_rows.row));
              model.shares_max_logit = own;
            });
      }
    }
  }

  const World& world_;
  const Case& c_;
  Hypotheses all_;
};

}  // namespace

Hypotheses max_logit_hypotheses(const World& world, const Symptoms& symptoms) {
  if (!symptoms.fails("max_logit")) return {};
  return MaxLogits(world).all();
}

}  // namespace cp_pool::diagnosis
