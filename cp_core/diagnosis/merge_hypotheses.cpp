// Mistakes in how the parts of a row are merged.
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include <ATen/ops/full_like.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/rank_parts.h"

namespace cp_pool::diagnosis {
namespace {

using Lse = const at::Tensor&;

at::Tensor has_keys(Lse lse) {
  return lse.gt(kNothing / 2);
}

// Takes `merge` where the flags are true and `other` elsewhere.
Merge where(const at::Tensor& flags, const Merge& merge, const Merge& other) {
  return {.keep = at::where(flags, merge.keep, other.keep),
          .add = at::where(flags, merge.add, other.add),
          .lse = at::where(flags, merge.lse, other.lse)};
}

Merge fixed(double keep, double add, Lse lse) {
  return {.keep = at::full_like(lse, keep), .add = at::full_like(lse, add), .lse = lse};
}

// Applies the rule only to parts in which the row sees keys; other parts change nothing.
MergeRule where_keys_are(const MergeRule& rule) {
  return [rule](Lse lse, Lse part_lse, bool first) {
    return where(has_keys(part_lse), rule(lse, part_lse, first), fixed(1, 0, lse));
  };
}

// Applies the rule only after the first part in which the row sees keys; that part is taken as it is.
MergeRule after_the_first(const MergeRule& rule) {
  return where_keys_are([rule](Lse lse, Lse part_lse, bool first) {
    return where(has_keys(lse), rule(lse, part_lse, first), fixed(0, 1, part_lse));
  });
}

// Merges with weights relative to `total`, which need not be the correct lse.
Merge weighed_by(Lse lse, Lse part_lse, const at::Tensor& total) {
  return {.keep = lse.sub(total).exp(), .add = part_lse.sub(total).exp(), .lse = total};
}

at::Tensor rounded(const at::Tensor& values, at::ScalarType dtype) {
  return values.to(dtype).to(at::kDouble);
}

class Merges : public Subject {
 public:
  Merges(const DenseProblem& dense, const Symptoms& symptoms) : Subject(dense, symptoms) {
    for (const Parts& parts : parts_) {
      without_weights(parts);
      lse_of_others(parts);
      base_2(parts);
      small_parts(parts);
      for (const auto& [dtype, name] : k16Bits) rounded_lse(parts, dtype, name);
    }
    starts();
    returned_lse();
    backwards();
  }

 private:
  static constexpr std::array k16Bits{std::pair{at::kBFloat16, "bf16"}, std::pair{at::kHalf, "fp16"}};

  void add(const Parts& parts, std::string id, const std::string& says, MergeRule rule) {
    model(std::move(id), fmt::format("{} ({})", says, parts.what),
          [parts, rule = std::move(rule)](SimulatedStep& model) {
            model.merge = rule;
            model.merges_rightly = false;
            take_seen_parts(parts, &WholeResults::out, model);
          });
  }
  void later(const Parts& parts, std::string id, const std::string& says, const MergeRule& rule) {
    add(parts, std::move(id), says, after_the_first(rule));
  }

  // Cuts each query's keys into the parts that fit its results best: those of `parts`, or a finer cut.
  static void take_seen_parts(const Parts& parts, Member by, SimulatedStep& model) {
    take_parts(parts, model);
    if (parts.finer.empty()) return;
    std::vector<SimulatedStep> cuts{model};
    for (const at::Tensor& finer : parts.finer) {
      SimulatedStep& cut = cuts.emplace_back(model);
      cut.part = finer.index_select(0, model.dense->q_rows.row);
      cut.parts = 2 * parts.count;
    }
    const at::Tensor number = nearest_model(cuts, by).unsqueeze(1);
    if (!number.any().item<bool>()) return;
    model.part = chosen(number, cuts, &SimulatedStep::part);
    model.parts = 2 * parts.count;
  }

  static void take_parts(const Parts& parts, SimulatedStep& model) {
    model.part = parts.of_pair.index_select(0, model.dense->q_rows.row);
    model.parts = parts.count;
  }

  void lse_of_others(const Parts& parts) {
    add(parts, "empty_part_counts", "a part in which a query sees no key has the lse 0 instead of minus infinity",
        [](Lse lse, Lse part_lse, bool first) {
          return merge_rightly(lse, at::where(has_keys(part_lse), part_lse, 0.0), first);
        });
    later(parts, "merge_not_rescaled", "the result merged so far is not rescaled when another part joins",
          [](Lse lse, Lse part_lse, bool) {
            const Merge merge = merge_rightly(lse, part_lse, false);
            return Merge{.keep = at::full_like(lse, 1.0), .add = merge.add, .lse = merge.lse};
          });
    later(parts, "merged_lse_is_largest", "the merged lse is the largest lse of the parts",
          [](Lse lse, Lse part_lse, bool) { return weighed_by(lse, part_lse, at::maximum(lse, part_lse)); });
    later(parts, "lse_without_a_part", "the merged lse stays the lse of the first part",
          [](Lse lse, Lse part_lse, bool) {
            const Merge merge = merge_rightly(lse, part_lse, false);
            return Merge{.keep = merge.keep, .add = merge.add, .lse = lse};
          });
    later(parts, "lse_without_a_part", "the merged lse stays the lse of the first part, and parts are weighed by it",
          [](Lse lse, Lse part_lse, bool) { return weighed_by(lse, part_lse, lse); });
    later(parts, "later_part_overwrites", "a later part replaces the result merged so far and its lse",
          [](Lse, Lse part_lse, bool) { return fixed(0, 1, part_lse); });
  }

  void rounded_lse(const Parts& parts, at::ScalarType dtype, const char* name) {
    const char* const id = "lse_in_16_bits";
    later(parts, id, fmt::format("the merged lse is rounded to {}", name), [dtype](Lse lse, Lse part_lse, bool) {
      return weighed_by(lse, part_lse, rounded(at::logaddexp(lse, part_lse), dtype));
    });
    const auto every = [dtype](Lse lse, Lse part_lse, bool) {
      const at::Tensor total = at::logaddexp(lse, part_lse);
      const Merge merge = weighed_by(lse, part_lse, at::where(has_keys(total), rounded(total, dtype), kNothing));
      return Merge{.keep = at::where(has_keys(lse), merge.keep, 0.0),
                   .add = at::where(has_keys(part_lse), merge.add, 0.0),
                   .lse = merge.lse};
    };
    add(parts, id, fmt::format("the merged lse is rounded to {}, including the lse of the first part", name),
        where_keys_are(every));
    add(parts, id, fmt::format("the merged lse is rounded to {}, even when a part without keys joins", name),
        [every](Lse lse, Lse part_lse, bool first) {
          return first ? merge_rightly(lse, part_lse, true) : every(lse, part_lse, false);
        });
  }

  void without_weights(const Parts& parts) {
    const char* const id = "parts_without_weights";
    later(parts, id, "parts are summed without weights",
          [](Lse lse, Lse part_lse, bool) { return fixed(1, 1, at::logaddexp(lse, part_lse)); });
    for (const double weight : {0.5, 1.0}) {
      later(parts, id, fmt::format("a later part is added with weight {:g}", weight),
            [weight](Lse lse, Lse part_lse, bool) {
              const Merge merge = merge_rightly(lse, part_lse, false);
              return Merge{.keep = merge.keep, .add = at::full_like(lse, weight), .lse = merge.lse};
            });
    }
    later(parts, id, "of two parts, each gets the weight of the other", [](Lse lse, Lse part_lse, bool) {
      const Merge right = merge_rightly(lse, part_lse, false);
      return Merge{.keep = right.add, .add = right.keep, .lse = right.lse};
    });
    const auto count = static_cast<double>(parts.count);
    // The out of a row is the sum of the parts in which it sees keys, divided by their number.
    for (const bool zero_lse : {false, true}) {
      model(id,
            fmt::format("parts are averaged without weights{} ({})", zero_lse ? ", as if each lse were 0" : "",
                        parts.what),
            [=](SimulatedStep& model) {
              take_parts(parts, model);
              model.merges_rightly = false;
              model.counts_parts = true;
              model.merge = after_the_first([=](Lse lse, Lse part_lse, bool) {
                return fixed(1, 1, zero_lse ? at::full_like(lse, std::log(count)) : at::logaddexp(lse, part_lse));
              });
            });
    }
  }

  void base_2(const Parts& parts) {
    const char* const id = "lse_base_2";
    // Some implementations write the constant with few digits.
    for (const double factor : {std::numbers::log2e, 1.4427}) {
      const char* const what = "is in base 2, but is merged as if it were in base e";
      const MergeRule rule = [factor](Lse lse, Lse part_lse, bool) {
        return merge_rightly(lse, part_lse.mul(factor), false);
      };
      later(parts, id, fmt::format("the lse of a later part {}", what), rule);
      add(parts, id, fmt::format("the lse of every part {}", what), where_keys_are(rule));
    }
  }

  void small_parts(const Parts& parts) {
    for (const double distance : {5.0, 10.0, 20.0}) {
      later(parts, "small_part_dropped",
            fmt::format("a later part is left out if its lse is more than {:g} below the merged lse", distance),
            [=](Lse lse, Lse part_lse, bool) {
              return where(part_lse.lt(lse.sub(distance)), fixed(1, 0, lse), merge_rightly(lse, part_lse, false));
            });
    }
  }

  // The lse before the first part is 0.
  void starts() {
    const char* const id = "merge_starts_at_zero";
    const MergeRule from_zero = [](Lse lse, Lse part_lse, bool) {
      return merge_rightly(at::where(has_keys(lse), lse, 0.0), part_lse, false);
    };
    const std::string says = "the lse before the first part is 0 instead of minus infinity";
    for (const auto& [where, rule] :
         {std::pair{"", from_zero}, std::pair{", in rows that see a key", where_keys_are(from_zero)}}) {
      model(id, says + where, [rule = rule](SimulatedStep& model) {
        model.merge = rule;
        model.merges_rightly = false;
      });
    }
    for (const Parts& parts : parts_) {
      // The first part becomes the result so far, even in rows that see none of its keys.
      add(parts, id, "a merged lse of minus infinity is taken for 0 when another part joins",
          where_keys_are([from_zero](Lse lse, Lse part_lse, bool first) {
            return first ? merge_rightly(lse, part_lse, true) : from_zero(lse, part_lse, false);
          }));
    }
  }

  void returned_lse() {
    for (const auto& [dtype, name] : k16Bits) {
      model("lse_in_16_bits", fmt::format("the returned lse is rounded to {}", name),
            [dtype = dtype](SimulatedStep& model) {
              model.returned = [dtype](const DenseProblem&, verify::Results& results) {
                results.lse = rounded(results.lse, dtype);
              };
            });
    }
  }

  void backwards() {
    if (!c_.training) return;
    for (const Parts& parts : parts_) {
      for (const auto& [lse, delta] : {std::pair{true, true}, std::pair{true, false}, std::pair{false, true}}) {
        backward("backward_of_part",
                 fmt::format("the backward uses the {} of each part instead of those of the whole row ({})",
                             lse ? (delta ? "lse and out" : "lse") : "out", parts.what),
                 [parts, lse = lse, delta = delta](SimulatedStep& model) {
                   model.lse_of_part = lse;
                   model.delta_of_part = delta;
                   take_seen_parts(parts, &WholeResults::dq, model);
                 });
      }
    }
    backward("max_not_subtracted", "the backward computes exp(score) / exp(lse) instead of exp(score - lse)",
             [](SimulatedStep& model) { model.exponentials_divided = true; });
    backward("delta_missing", "the score gradient lacks the dout . out term",
             [](SimulatedStep& model) { model.delta_missing = true; });
  }

  std::vector<Parts> parts_ = parts_of(dense_);
};

}  // namespace

Hypotheses merge_hypotheses(const DenseProblem& dense, const Symptoms& symptoms) {
  return Merges(dense, symptoms).all();
}

}  // namespace cp_pool::diagnosis
