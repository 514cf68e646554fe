// Mistakes in which scores count in max_logit.
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cp_core/diagnosis/mask_rule.h"
#include "cp_core/diagnosis/rank_parts.h"
#include "cp_core/diagnosis/subject.h"

namespace cp_pool::diagnosis {
namespace {

class MaxLogits : Subject {
 public:
  using Subject::Subject;

  Hypotheses all() {
    model("max_logit_counts_zero", "max_logit includes a score of 0 that no pair has",
          [](Model& model) { model.max_logit_least = 0; });
    hidden_keys();
    if (world_.sink.defined()) {
      model("max_logit_of_sink", "max_logit includes the sink", [](Model& model) {
        model.returned = [](const World& world, verify::Results& results) {
          // The mask probe has no sink.
          if (world.sink.defined()) results.max_logit = at::maximum(results.max_logit, world.sink.view({1, -1, 1}));
        };
      });
    }
    if (world_.ranks > 1) not_reduced();
    return std::move(all_);
  }

 private:
  void hide(const std::string& says, std::function<void(const World&, MaskRule&)> change) {
    model("max_logit_of_hidden_keys", says, [change = std::move(change)](Model& model) {
      MaskRule rule(*model.world);
      change(*model.world, rule);
      model.max_logit_times = rule.times();
    });
  }

  void hidden_keys() {
    if (c_.window[0] >= 0 || c_.window[1] >= 0) {
      hide("max_logit includes scores outside the window",
           [](const World&, MaskRule& rule) { rule.limited = {false, false}; });
    }
    if (c_.causal) {
      hide("max_logit includes scores of keys after the causal diagonal",
           [](const World&, MaskRule& rule) { rule.causal = false; });
    }
    if (c_.chunk > 0) {
      hide("max_logit includes scores of keys in other chunks of the mask",
           [](const World&, MaskRule& rule) { rule.chunk = 0; });
    }
    hide("max_logit includes scores of all keys of a sequence, regardless of the mask",
         [](const World&, MaskRule& rule) {
           rule.limited = {false, false};
           rule.causal = false;
           rule.chunk = 0;
         });
    if (c_.batch > 1) {
      hide("max_logit includes scores of keys in other sequences",
           [](const World&, MaskRule& rule) { rule.borders = false; });
    }
    if (c_.pad_between_seqs) {
      hide("max_logit includes scores of keys at padding positions",
           [](const World&, MaskRule& rule) { rule.padding_keys = true; });
    }
    rectangles();
    next_rows();
    for (const std::int64_t off : {1, 2}) {
      hide(fmt::format("max_logit includes the score{} after the last key that a query sees",
                       off == 1 ? " of the key" : "s of the two keys"),
           [off](const World&, MaskRule& rule) {
             rule.causal_edge = off;
             rule.window[1] += off;
             rule.chunk_end_shift = off;
           });
    }
  }

  void count(std::string says, const at::Tensor& times) {
    model("max_logit_of_hidden_keys", std::move(says),
          [times](Model& model) { model.max_logit_times = times.index_select(0, model.world->q_rows.row); });
  }

  // A chunk of queries and the keys from the first to the last that it sees are computed as one rectangle, and the
  // pairs in it that the mask hides are counted. The keys are those of a rank's stretch or of a sequence, within one
  // chunk of the mask.
  void rectangles() {
    const Side& kv = world_.kv_rows;
    for (const bool of_ranks : {false, true}) {
      const at::Tensor keys = of_ranks ? stretches(kv) : kv.sequence;
      const char* const of = of_ranks ? "a rank" : "a sequence";
      count(fmt::format("max_logit includes the hidden scores of a chunk of queries with the keys of {} from the first "
                        "to the last that the chunk sees",
                        of),
            in_rectangles(stretches(world_.q_rows), keys));
    }
  }

  // int64 [rows]: the number of the stretch of a rank and sequence that the row is in.
  [[nodiscard]] at::Tensor stretches(const Side& side) const {
    return side.rank.mul(c_.batch).add(side.sequence).mul(2).add(stretch_of_rows(side));
  }

  // fp64, pairs: 1 in the rectangle from the first to the last query and key that form a visible pair, for each group
  // of queries and each group of keys; else 0.
  [[nodiscard]] at::Tensor in_rectangles(const at::Tensor& q_group, const at::Tensor& kv_group) const {
    const at::Tensor seen = Model(world_).forward.times.ne(0.0);
    at::Tensor inside = at::zeros_like(seen);
    for (const auto& [q, kv] : groups_that_meet(q_group, kv_group, seen)) {
      const at::Tensor pairs = seen.logical_and(q.unsqueeze(1)).logical_and(kv.unsqueeze(0));
      const at::Tensor rows = between(world_.q_rows.position, pairs.any(1)).logical_and(q);
      const at::Tensor columns = between(world_.kv_rows.position, pairs.any(0)).logical_and(kv);
      inside.logical_or_(rows.unsqueeze(1).logical_and(columns.unsqueeze(0)));
    }
    return inside.to(at::kDouble);
  }

  // Returns the groups of queries and keys that have a visible pair, as bool [q rows] and bool [kv rows]. The chunks of
  // the mask cut groups of keys further.
  [[nodiscard]] std::vector<std::pair<at::Tensor, at::Tensor>> groups_that_meet(const at::Tensor& q_group,
                                                                                const at::Tensor& kv_group,
                                                                                const at::Tensor& seen) const {
    std::vector<std::pair<at::Tensor, at::Tensor>> groups;
    const at::Tensor chunk =
        c_.chunk > 0 ? world_.kv_rows.position.clamp_min(0).div(c_.chunk, "floor") : world_.kv_rows.position.mul(0);
    const at::Tensor keys = kv_group.mul(chunk.max().add(1)).add(chunk);
    for (std::int64_t g = 0; g <= q_group.max().item<std::int64_t>(); ++g) {
      const at::Tensor q = q_group.eq(g);
      const at::Tensor met = seen.logical_and(q.unsqueeze(1)).any(0);
      for (std::int64_t k = 0; k <= keys.max().item<std::int64_t>(); ++k) {
        const at::Tensor kv = keys.eq(k);
        if (met.logical_and(kv).any().item<bool>()) groups.emplace_back(q, kv);
      }
    }
    return groups;
  }

  static at::Tensor between(const at::Tensor& position, const at::Tensor& some) {
    const at::Tensor those = position.masked_select(some);
    return position.ge(those.min()).logical_and(position.le(those.max()));
  }

  // The row after the last key that a query sees, in a rank's chunk or in a sequence, is counted too, even if it is
  // padding.
  void next_rows() {
    const Side& kv = world_.kv_rows;
    const at::Tensor rows = at::arange(kv.count(), at::kLong);
    count(
        "max_logit includes the score of the row after the last key that a query sees in a rank's chunk, even if that "
        "row is padding",
        with_next(stretches(kv), rows, kv.rank));
    const at::Tensor order = order_in_sequences(kv);
    if (order.equal(rows)) return;
    count(
        "max_logit includes the score of the row after the last key that a query sees in a sequence, even if that row "
        "is padding",
        with_next(kv.sequence, order, kv.rank.mul(0)));
  }

  // place: the index of each key in memory; memory: the rank that holds it.
  [[nodiscard]] at::Tensor with_next(const at::Tensor& group, const at::Tensor& place, const at::Tensor& memory) const {
    const at::Tensor times = Model(world_).forward.times;
    at::Tensor counted = times.ne(0.0);
    const at::Tensor right = counted.clone();
    for (std::int64_t g = 0; g <= group.max().item<std::int64_t>(); ++g) {
      const at::Tensor of_group = group.eq(g);
      if (!of_group.any().item<bool>()) continue;
      const at::Tensor places =
          place.unsqueeze(0).expand_as(times).masked_fill(right.logical_and(of_group).logical_not(), -2);
      const at::Tensor next = places.amax(1, /*keepdim=*/true).add(1);  // -1 where none is seen
      const at::Tensor mine = memory.eq(memory.masked_select(of_group)[0]);
      counted.logical_or_(place.unsqueeze(0).eq(next).logical_and(mine));
    }
    return counted.to(at::kDouble);
  }

  void not_reduced() {
    const char* const id = "max_logit_not_reduced";
    for (const QueryShares& shares : incomplete_shares(world_.ranks)) {
      model(id, "max_logit " + shares.says,
            [counts = shares.counts](Model& model) { model.shares_max_logit = counts; });
    }
    const at::Tensor own = at::eye(world_.ranks, at::kDouble);
    for (const Ring& ring : rings_of(world_)) {
      const at::Tensor steps = step_of_pairs(world_, ring);
      for (int step = 0; step < ring.size; ++step) {
        const at::Tensor counts = steps.eq(step).to(at::kDouble);
        const std::string whose =
            step == 0 ? "a rank's own keys" : fmt::format("the keys of step {} of the ring", step);
        model(id, fmt::format("max_logit is the maximum over {} only", whose), [counts](Model& model) {
          model.max_logit_times = model.forward.times.mul(counts.index_select(0, model.world->q_rows.row));
        });
        model(id, fmt::format("max_logit is the maximum over the rank's own queries with {} only", whose),
              [counts, own](Model& model) {
                model.max_logit_times = model.forward.times.mul(counts.index_select(0, model.world->q_rows.row));
                model.shares_max_logit = own;
              });
      }
    }
  }
};

}  // namespace

Hypotheses max_logit_hypotheses(const World& world, const Symptoms& symptoms) {
  if (!symptoms.fails("max_logit")) return {};
  return MaxLogits(world, symptoms).all();
}

}  // namespace cp_pool::diagnosis
