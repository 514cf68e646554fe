// Mistakes in how the parts of a row are merged.
#include <cmath>
#include <numbers>
#include <set>
#include <string>
#include <utility>

#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logaddexp2.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cp_core/diagnosis/rank_parts.h"
#include "cp_core/diagnosis/row_choice.h"
#include "cp_core/diagnosis/subject.h"

namespace cp_pool::diagnosis {
namespace {

at::Tensor has_keys(const at::Tensor& lse) {
  return lse.gt(kNothing / 2);
}

// Applies the rule only to parts in which the row sees keys; other parts change nothing.
MergeRule where_keys_are(const MergeRule& rule) {
  return [rule](const at::Tensor& lse, const at::Tensor& part_lse, bool first) {
    const Merge merge = rule(lse, part_lse, first);
    const at::Tensor sees = has_keys(part_lse);
    return Merge{.keep = at::where(sees, merge.keep, 1.0),
                 .add = at::where(sees, merge.add, 0.0),
                 .lse = at::where(sees, merge.lse, lse)};
  };
}

// Applies the rule only after the first part in which the row sees keys; that part is taken as it is.
MergeRule after_the_first(const MergeRule& rule) {
  return where_keys_are([rule](const at::Tensor& lse, const at::Tensor& part_lse, bool first) {
    const Merge merge = rule(lse, part_lse, first);
    const at::Tensor empty = has_keys(lse).logical_not();
    return Merge{.keep = at::where(empty, 0.0, merge.keep),
                 .add = at::where(empty, 1.0, merge.add),
                 .lse = at::where(empty, part_lse, merge.lse)};
  });
}

// Merges with weights relative to `total`, which need not be the correct lse.
Merge weighed_by(const at::Tensor& lse, const at::Tensor& part_lse, const at::Tensor& total) {
  return {.keep = lse.sub(total).exp(), .add = part_lse.sub(total).exp(), .lse = total};
}

at::Tensor rounded(const at::Tensor& values, at::ScalarType dtype) {
  return values.to(dtype).to(at::kDouble);
}

class Merges : Subject {
 public:
  using Subject::Subject;

  Hypotheses all() {
    for (const Parts& parts : parts_) rules(parts);
    starts();
    returned_lse();
    overflow();
    backwards();
    return std::move(all_);
  }

 private:
  void add(const Parts& parts, std::string id, const std::string& says, MergeRule rule) {
    model(std::move(id), fmt::format("{} ({})", says, parts.what), [parts, rule = std::move(rule)](Model& model) {
      model.merge = rule;
      model.merges_rightly = false;
      take_seen_parts(parts, nearest_model, model);
    });
  }

  // Cuts each query's keys into the parts that fit its results best: those of `parts`, or a finer cut.
  static void take_seen_parts(const Parts& parts, at::Tensor (*nearest)(const std::vector<Model>&), Model& model) {
    take_parts(parts, model);
    if (parts.finer.empty()) return;
    std::vector<Model> cuts{model};
    for (const at::Tensor& finer : parts.finer) {
      Model& cut = cuts.emplace_back(model);
      cut.part = finer.index_select(0, model.world->q_rows.row);
      cut.parts = 2 * parts.count;
    }
    const at::Tensor number = nearest(cuts).unsqueeze(1);
    if (!number.any().item<bool>()) return;
    model.part = chosen(number, cuts, &Model::part);
    model.parts = 2 * parts.count;
  }

  static void take_parts(const Parts& parts, Model& model) {
    model.part = parts.of_pair.index_select(0, model.world->q_rows.row);
    model.parts = parts.count;
  }

  void rules(const Parts& parts) {
    without_weights(parts);
    empty_parts(parts);
    transposed_lse(parts);
    add(parts, "merge_not_rescaled", "the result merged so far is not rescaled when another part joins",
        after_the_first([](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
          Merge merge = merge_rightly(lse, part_lse, false);
          merge.keep = at::ones_like(merge.keep);
          return merge;
        }));
    add(parts, "merged_lse_is_largest", "the merged lse is the largest lse of the parts",
        after_the_first([](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
          return weighed_by(lse, part_lse, at::maximum(lse, part_lse));
        }));
    add(parts, "lse_without_a_part", "the merged lse stays the lse of the first part",
        after_the_first([](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
          Merge merge = merge_rightly(lse, part_lse, false);
          merge.lse = lse;
          return merge;
        }));
    add(parts, "later_part_overwrites", "a later part replaces the result merged so far and its lse",
        after_the_first([](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
          return Merge{.keep = at::zeros_like(lse), .add = at::ones_like(lse), .lse = part_lse};
        }));
    add(parts, "later_part_overwrites", "a later part replaces the result merged so far, but the lse is merged",
        after_the_first([](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
          return Merge{.keep = at::zeros_like(lse), .add = at::ones_like(lse), .lse = at::logaddexp(lse, part_lse)};
        }));
    base_2(parts);
    small_parts(parts);
    for (const auto& [dtype, name] : {std::pair{at::kBFloat16, "bf16"}, std::pair{at::kHalf, "fp16"}}) {
      add(parts, "lse_in_16_bits", fmt::format("the merged lse is rounded to {}", name),
          after_the_first([dtype = dtype](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
            return weighed_by(lse, part_lse, rounded(at::logaddexp(lse, part_lse), dtype));
          }));
      const auto every = [dtype = dtype](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
        const at::Tensor total = at::logaddexp(lse, part_lse);
        const Merge merge = weighed_by(lse, part_lse, at::where(has_keys(total), rounded(total, dtype), kNothing));
        return Merge{.keep = at::where(has_keys(lse), merge.keep, 0.0),
                     .add = at::where(has_keys(part_lse), merge.add, 0.0),
                     .lse = merge.lse};
      };
      add(parts, "lse_in_16_bits",
          fmt::format("the merged lse is rounded to {}, including the lse of the first part", name),
          where_keys_are(every));
      add(parts, "lse_in_16_bits",
          fmt::format("the merged lse is rounded to {}, even when a part without keys joins", name),
          [every](const at::Tensor& lse, const at::Tensor& part_lse, bool first) {
            return first ? merge_rightly(lse, part_lse, true) : every(lse, part_lse, false);
          });
    }
  }

  void without_weights(const Parts& parts) {
    const char* const id = "parts_without_weights";
    const auto fixed = [](double keep, double add_weight) {
      return [keep, add_weight](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
        return Merge{.keep = at::ones_like(lse).mul(keep),
                     .add = at::ones_like(lse).mul(add_weight),
                     .lse = at::logaddexp(lse, part_lse)};
      };
    };
    add(parts, id, "parts are summed without weights", after_the_first(fixed(1, 1)));
    add(parts, id, "parts are averaged pairwise without weights", after_the_first(fixed(0.5, 0.5)));
    for (const double weight : {0.5, 1.0}) {
      add(parts, id, fmt::format("a later part is added with weight {}", weight == 1 ? "1" : "0.5"),
          after_the_first([weight](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
            Merge merge = merge_rightly(lse, part_lse, false);
            merge.add = at::ones_like(lse).mul(weight);
            return merge;
          }));
    }
    const auto count = static_cast<double>(parts.count);
    add(parts, id, "parts are averaged without weights, and parts without keys count as zeros",
        [count](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
          return Merge{
              .keep = at::ones_like(lse), .add = at::ones_like(lse).div(count), .lse = at::logaddexp(lse, part_lse)};
        });
    averaged(parts, id);
  }

  // The out of a row is the sum of the parts in which it sees keys, divided by their number.
  void averaged(const Parts& parts, const char* id) {
    for (const bool zero_lse : {false, true}) {
      model(id,
            fmt::format("parts are averaged without weights{} ({})", zero_lse ? ", as if each lse were 0" : "",
                        parts.what),
            [parts, zero_lse](Model& model) {
              take_parts(parts, model);
              model.merges_rightly = false;
              model.counts_parts = true;
              model.merge = after_the_first([zero_lse, n = static_cast<double>(parts.count)](
                                                const at::Tensor& lse, const at::Tensor& part_lse, bool) {
                at::Tensor total = at::logaddexp(lse, part_lse);
                if (zero_lse) total = at::zeros_like(lse).add(std::log(n));
                return Merge{.keep = at::ones_like(lse), .add = at::ones_like(lse), .lse = total};
              });
            });
    }
  }

  void base_2(const Parts& parts) {
    const char* const id = "lse_base_2";
    constexpr double kLog2E = std::numbers::log2e;
    constexpr double kLn2 = std::numbers::ln2;
    // Some implementations write the constant with few digits.
    for (const double factor : {kLog2E, kLn2, 1.4427, 0.6931}) {
      const char* const what = factor > 1 ? "is in base 2, but is merged as if it were in base e"
                                          : "is in base e, but is converted as if it were in base 2";
      add(parts, id, fmt::format("the lse of a later part {}", what),
          after_the_first([factor](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
            return merge_rightly(lse, part_lse.mul(factor), false);
          }));
      add(parts, id, fmt::format("the lse of every part {}", what),
          where_keys_are([factor](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
            return merge_rightly(lse, part_lse.mul(factor), false);
          }));
    }
    add(parts, id, "parts are weighted and the lse is merged with 2^lse instead of e^lse",
        after_the_first([](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
          const at::Tensor total = at::logaddexp2(lse, part_lse);
          return Merge{
              .keep = lse.sub(total).mul(kLn2).exp(), .add = part_lse.sub(total).mul(kLn2).exp(), .lse = total};
        }));
    add(parts, id, "parts are weighted with 2^(lse - merged lse) instead of e^(lse - merged lse)",
        after_the_first([](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
          const at::Tensor total = at::logaddexp(lse, part_lse);
          return Merge{
              .keep = lse.sub(total).mul(kLn2).exp(), .add = part_lse.sub(total).mul(kLn2).exp(), .lse = total};
        }));
  }

  void small_parts(const Parts& parts) {
    for (const double distance : {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0}) {
      add(parts, "small_part_dropped",
          fmt::format("a later part is left out if its lse is more than {:g} below the merged lse", distance),
          after_the_first([distance](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
            const Merge merge = merge_rightly(lse, part_lse, false);
            const at::Tensor drops = part_lse.lt(lse.sub(distance));
            return Merge{.keep = at::where(drops, 1.0, merge.keep),
                         .add = at::where(drops, 0.0, merge.add),
                         .lse = at::where(drops, lse, merge.lse)};
          }));
      add(parts, "small_part_dropped",
          fmt::format("of a later part and the result merged so far, the one whose lse is more than {:g} below the "
                      "other lse is left out",
                      distance),
          after_the_first([distance](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
            const Merge merge = merge_rightly(lse, part_lse, false);
            const at::Tensor drops = part_lse.lt(lse.sub(distance));
            const at::Tensor lost = lse.lt(part_lse.sub(distance));
            return Merge{.keep = at::where(drops, 1.0, at::where(lost, 0.0, merge.keep)),
                         .add = at::where(drops, 0.0, at::where(lost, 1.0, merge.add)),
                         .lse = at::where(drops, lse, at::where(lost, part_lse, merge.lse))};
          }));
    }
  }

  // A part without keys is not neutral.
  void empty_parts(const Parts& parts) {
    add(parts, "empty_part_counts", "a part in which a query sees no key has the lse 0 instead of minus infinity",
        [](const at::Tensor& lse, const at::Tensor& part_lse, bool first) {
          return merge_rightly(lse, at::where(has_keys(part_lse), part_lse, 0.0), first);
        });
  }

  // The lse of a part is written by row and then by head, and read by head and then by row, or the other way round.
  void transposed_lse(const Parts& parts) {
    const std::int64_t ranks = world_.ranks;
    const std::int64_t sequences = c_.layout == Layout::thd ? 1 : c_.batch;
    if (c_.heads == 1 || world_.q_rows.count() % (ranks * sequences) != 0) return;
    for (const std::int64_t blocks : std::set<std::int64_t>{ranks, ranks * sequences}) {
      for (const bool by_row : {true, false}) {
        const auto read = [blocks, by_row](const at::Tensor& lse) {
          const std::int64_t heads = lse.size(0);
          const at::Tensor of_blocks =
              lse.view({heads, blocks, -1}).transpose(0, 1).contiguous();  // [block, head, row]
          const std::int64_t rows = of_blocks.size(2);
          const at::Tensor memory = by_row ? of_blocks.transpose(1, 2).contiguous().view({blocks, heads, rows})
                                           : of_blocks.view({blocks, rows, heads}).transpose(1, 2);
          return memory.transpose(0, 1).reshape(lse.sizes());
        };
        model("axes_exchanged",
              fmt::format("in the lse of each part, the axes of tokens and heads are exchanged ({})", parts.what),
              [parts, read](Model& model) {
                model.needs_all_rows = true;
                if (model.world->q_rows.first.empty()) return;
                take_parts(parts, model);
                model.merges_rightly = false;
                model.merge = [read](const at::Tensor& lse, const at::Tensor& part_lse, bool first) {
                  return merge_rightly(lse, read(part_lse), first);
                };
              });
      }
    }
  }

  // The lse before the first part is 0.
  void starts() {
    const char* const id = "merge_starts_at_zero";
    const auto from_zero = [](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
      return merge_rightly(at::where(has_keys(lse), lse, 0.0), part_lse, false);
    };
    model(id, "the lse before the first part is 0 instead of minus infinity", [from_zero](Model& model) {
      model.merge = from_zero;
      model.merges_rightly = false;
    });
    model(id, "the lse before the first part is 0 instead of minus infinity, in rows that see a key",
          [from_zero](Model& model) {
            model.merge = where_keys_are(from_zero);
            model.merges_rightly = false;
          });
    for (const Parts& parts : parts_) {
      // The first part becomes the result so far, even in rows that see none of its keys.
      add(parts, id, "a merged lse of minus infinity is taken for 0 when another part joins",
          where_keys_are([from_zero](const at::Tensor& lse, const at::Tensor& part_lse, bool first) {
            return first ? merge_rightly(lse, part_lse, true) : from_zero(lse, part_lse, false);
          }));
    }
  }

  void return_lse(std::string id, std::string says, std::function<at::Tensor(const World&, const at::Tensor&)> change) {
    model(std::move(id), std::move(says), [change = std::move(change)](Model& model) {
      model.returned = [change](const World& world, verify::Results& results) {
        results.lse = change(world, results.lse);
      };
    });
  }

  void returned_lse() {
    return_lse("lse_base_2", "the returned lse is in base 2",
               [](const World&, const at::Tensor& lse) { return lse.mul(std::numbers::log2e); });
    return_lse("lse_base_2", "the returned lse is multiplied by ln 2, as if it were in base 2",
               [](const World&, const at::Tensor& lse) { return lse.mul(std::numbers::ln2); });
    for (const auto& [dtype, name] : {std::pair{at::kBFloat16, "bf16"}, std::pair{at::kHalf, "fp16"}}) {
      return_lse("lse_in_16_bits", fmt::format("the returned lse is rounded to {}", name),
                 [dtype = dtype](const World&, const at::Tensor& lse) { return rounded(lse, dtype); });
    }
    halves();
    // The returned lse is that of one part only; out is correct.
    for (const Parts& parts : parts_) {
      for (std::int64_t part = 0; part < parts.count; ++part) {
        model("lse_without_a_part", fmt::format("the returned lse is that of part {} only ({})", part, parts.what),
              [parts, part](Model& model) {
                take_parts(parts, model);
                model.returned_part_lse = part;
              });
      }
      model("lse_without_a_part", fmt::format("the returned lse leaves out the last part ({})", parts.what),
            [parts](Model& model) {
              take_parts(parts, model);
              model.returned_part_lse = -1;
            });
    }
  }

  void halves() {
    const std::int64_t count = world_.q_rows.count();
    std::vector<std::int64_t> other(static_cast<std::size_t>(count), -1);
    const auto* const sequence = world_.q_rows.sequence.const_data_ptr<std::int64_t>();
    const auto* const rank = world_.q_rows.rank.const_data_ptr<std::int64_t>();
    for (std::int64_t begin = 0; begin < count;) {
      std::int64_t end = begin;
      while (end < count && rank[end] == rank[begin] && sequence[end] == sequence[begin]) ++end;
      const std::int64_t half = (end - begin) / 2;
      if ((end - begin) % 2 != 0) return;
      for (std::int64_t row = begin; row < end; ++row)
        other[static_cast<std::size_t>(row)] = row < begin + half ? row + half : row - half;
      begin = end;
    }
    const at::Tensor index = index_tensor(other);
    const char* const id = "lse_of_wrong_half";
    return_lse(id, "the lse values of a rank's two chunks are swapped",
               [index](const World&, const at::Tensor& lse) { return lse.index_select(0, index); });
    const at::Tensor second = world_.q_rows.half.eq(1).view({-1, 1, 1});
    return_lse(id, "the lse of a rank's first chunk is returned for the second chunk too",
               [index, second](const World&, const at::Tensor& lse) {
                 return at::where(second, lse.index_select(0, index), lse);
               });
    return_lse(id, "the lse of a rank's second chunk is returned for the first chunk too",
               [index, second](const World&, const at::Tensor& lse) {
                 return at::where(second, lse, lse.index_select(0, index));
               });
  }

  void overflow() {
    const char* const id = "max_not_subtracted";
    model(id, "the softmax takes exponentials of scores without subtracting the maximum",
          [](Model& model) { model.softmax_in_fp32 = true; });
    for (const Parts& parts : parts_) {
      model(id,
            fmt::format("the softmax of a part takes exponentials of scores without subtracting the maximum ({})",
                        parts.what),
            [parts](Model& model) {
              take_parts(parts, model);
              model.softmax_in_fp32 = true;
            });
      add(parts, id, "the merge takes exponentials of the lse without subtracting the maximum",
          after_the_first([](const at::Tensor& lse, const at::Tensor& part_lse, bool) {
            const auto in_fp32 = [](const at::Tensor& values) { return values.to(at::kFloat).exp().to(at::kDouble); };
            const at::Tensor total = in_fp32(lse).add(in_fp32(part_lse)).to(at::kFloat).to(at::kDouble).log();
            return weighed_by(lse, part_lse, total);
          }));
    }
    if (!world_.c().training) return;
    backward(id, "the backward computes exp(score) / exp(lse) instead of exp(score - lse)",
             [](Model& model) { model.exponentials_divided = true; });
  }

  void backwards() {
    if (!world_.c().training) return;
    for (const Parts& parts : parts_) {
      for (const auto& [lse, delta] : {std::pair{true, true}, std::pair{true, false}, std::pair{false, true}}) {
        const char* const what = lse ? (delta ? "lse and out" : "lse") : "out";
        backward("backward_of_part",
                 fmt::format("the backward uses the {} of each part instead of those of the whole row ({})", what,
                             parts.what),
                 [parts, lse = lse, delta = delta](Model& model) {
                   model.lse_of_part = lse;
                   model.delta_of_part = delta;
                   take_seen_parts(parts, nearest_model_in_dq, model);
                 });
      }
    }
    backward("delta_missing", "the score gradient lacks the dout . out term",
             [](Model& model) { model.delta_missing = true; });
  }

  std::vector<Parts> parts_ = parts_of(world_);
};

}  // namespace

Hypotheses merge_hypotheses(const World& world, const Symptoms& symptoms) {
  return Merges(world, symptoms).all();
}

}  // namespace cp_pool::diagnosis
