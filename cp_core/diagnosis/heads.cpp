// Mistakes in which heads of the inputs a head computes with, and in which heads its results are returned.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/gradient_sums.h"
#include "cp_core/diagnosis/rank_parts.h"
#include "cp_core/diagnosis/subject.h"

namespace cp_pool::diagnosis {
namespace {

using Map = HeadMap;

bool is_identity(const Map& map) {
  return map == mapped(static_cast<std::int64_t>(map.size()), std::identity());
}

Map inverse(const Map& map) {
  Map back(map.size());
  for (std::size_t h = 0; h < map.size(); ++h) back[static_cast<std::size_t>(map[h])] = static_cast<std::int64_t>(h);
  return back;
}

class Heads : Subject {
 public:
  Heads(const World& world, const Symptoms& symptoms)
      : Subject(world, symptoms), heads_(c_.heads), kv_heads_(c_.kv_heads), group_(world.group()) {
    std::set<std::int64_t> counts{world.ranks};
    if (head_ranks(c_) > 1) counts.insert(head_ranks(c_));
    for (const std::int64_t count : counts) {
      if (count > 1 && heads_ % count == 0) block_counts_.push_back(count);
    }
  }

  Hypotheses all() {
    key_heads();
    for (const std::int64_t blocks : block_counts_) exchanged(blocks);
    repeated();
    return std::move(all_);
  }

 private:
  // Query heads read wrong key-value heads. Gradients land at the heads that were read, or at those that should have
  // been read.
  void read(const std::string& id, const std::string& says, const Map& kv_of) {
    if (kv_of == mapped(heads_, [this](std::int64_t h) { return h / group_; })) return;
    if (!read_maps_.emplace(id, kv_of).second) return;
    for (const bool lands_there : {true, false}) {
      for (const bool backward_alone : {false, true}) {
        model(
            id, fmt::format("{}{}", backward_alone ? "in the backward only, " : "", says),
            [kv_of, lands_there, backward_alone](Model& model) {
              if (!backward_alone) model.forward.kv_head = kv_of;
              model.backward.kv_head = kv_of;
              if (lands_there) model.dkv_head = kv_of;
            },
            backward_alone ? Hypothesis::Level::backward : Hypothesis::Level::forward);
      }
    }
  }

  void key_heads() {
    if (kv_heads_ == 1) return;
    if (group_ > 1) {
      read("kv_heads_interleaved",
           fmt::format("query head h reads key-value head h % {} instead of h / {}", kv_heads_, group_),
           mapped(heads_, [this](std::int64_t h) { return h % kv_heads_; }));
      statistics_stay(1);
    }
    for (const std::int64_t blocks : block_counts_) {
      if (kv_heads_ % blocks != 0 || group_ == 1) continue;
      const std::int64_t q_block = heads_ / blocks;
      const std::int64_t kv_block = kv_heads_ / blocks;
      if (kv_block > 1) {
        read("kv_heads_interleaved",
             fmt::format("in each of {} blocks of heads, query head h reads key-value head h % {} instead of h / {}",
                         blocks, kv_block, group_),
             mapped(heads_, [=](std::int64_t h) { return h / q_block * kv_block + h % q_block % kv_block; }));
        statistics_stay(blocks);
      }
    }
    if (group_ > 1) k_or_v_interleaved();
    for (const std::int64_t group :
         std::set<std::int64_t>{group_ * 2, group_ + 1, std::max<std::int64_t>(1, group_ / 2)}) {
      read("kv_group_size_wrong", fmt::format("{} query heads read each key-value head instead of {}", group, group_),
           mapped(heads_, [=, this](std::int64_t h) { return h / group % kv_heads_; }));
    }
    const char* const id = "kv_head_repeated";
    read(id, "all query heads read key-value head 0", mapped(heads_, [](std::int64_t) { return 0; }));
    read(id, "all query heads read the last key-value head",
         mapped(heads_, [this](std::int64_t) { return kv_heads_ - 1; }));
    for (const std::int64_t blocks : block_counts_) {
      if (kv_heads_ % blocks != 0) continue;
      const std::int64_t kv_block = kv_heads_ / blocks;
      const auto own = [this](std::int64_t h) { return h / group_; };
      read(id, fmt::format("every block of {} key-value heads is a copy of the first block", kv_block),
           mapped(heads_, [=](std::int64_t h) { return own(h) % kv_block; }));
      read(id, fmt::format("each group of {} key-value heads consists of copies of its first head", kv_block),
           mapped(heads_, [=](std::int64_t h) { return own(h) / kv_block * kv_block; }));
    }
    for (std::int64_t pair = 2; pair < kv_heads_; pair *= 2) {
      read(id, fmt::format("each group of {} key-value heads consists of copies of its first head", pair),
           mapped(heads_, [=, this](std::int64_t h) { return h / group_ / pair * pair; }));
    }
  }

  // Only K, or only V, is repeated as a whole. Its gradients are summed in the same way, or as defined.
  void k_or_v_interleaved() {
    const Map tiled = mapped(heads_, [this](std::int64_t h) { return h % kv_heads_; });
    const Map own = mapped(heads_, [this](std::int64_t h) { return h / group_; });
    for (const bool k : {true, false}) {
      for (const bool lands_there : {true, false}) {
        model("kv_heads_interleaved",
              fmt::format("query head h reads {0} of key-value head h % {1}, and {2} of head h / {3}", k ? "K" : "V",
                          kv_heads_, k ? "V" : "K", group_),
              [=](Model& model) {
                for (Pass* const pass : {&model.forward, &model.backward}) {
                  pass->kv_head = k ? tiled : own;
                  pass->v_head = k ? own : tiled;
                }
                if (!lands_there) return;
                model.dk_head = k ? tiled : own;
                model.dkv_head = k ? own : tiled;
              });
      }
    }
    // The forward is right, and the gradients of key-value heads are summed over the wrong query heads.
    if (symptoms_.fails("dq") || !c_.training) return;
    for (const auto& [dk, dv] : {std::pair{true, true}, {true, false}, {false, true}}) {
      sums("gradient_heads_misgrouped",
           fmt::format("{} of key-value head h {} summed over the query heads i with i % {} = h instead of i / {} = h",
                       dk ? (dv ? "dk and dv" : "dk") : "dv", dk && dv ? "are" : "is", kv_heads_, group_),
           [=, dk = dk, dv = dv](Model& model) {
             model.dk_head = dk ? tiled : own;
             model.dkv_head = dv ? tiled : own;
           });
    }
  }

  // In each of `blocks` blocks, the heads of q, out, dout and dq are ordered [group, kv heads], but those of lse,
  // delta, bias and max_logit [kv heads, group].
  void statistics_stay(std::int64_t blocks) {
    const std::int64_t block = heads_ / blocks;
    const std::int64_t kv_block = kv_heads_ / blocks;
    const Map read = mapped(
        heads_, [=, this](std::int64_t h) { return h / block * block + h % group_ * kv_block + h % block / group_; });
    model("kv_heads_interleaved",
          fmt::format("query head h reads key-value head h % {} instead of h / {}, and the lse of "
                      "head h is stored at another head",
                      kv_block, group_),
          [read](Model& model) {
            model.forward.q_head = model.backward.q_head = read;
            model.forward.dout_head = model.backward.dout_head = read;
            model.dq_head = read;
            model.delta_head = mapped(static_cast<std::int64_t>(read.size()), std::identity());
            const at::Tensor index = index_tensor(inverse(read));
            model.returned = [index](const World&, verify::Results& results) {
              results.out = results.out.index_select(1, index);
            };
            model.from_returned = true;
          });
  }

  void exchanged(std::int64_t blocks) {
    const std::vector<WrongHeads> of_q = exchanged_heads(heads_, blocks);
    const bool kv_divides = kv_heads_ % blocks == 0;
    const std::vector<WrongHeads> of_kv = kv_divides ? exchanged_heads(kv_heads_, blocks) : std::vector<WrongHeads>();
    for (std::size_t i = 0; i < of_q.size(); ++i) {
      if (is_identity(of_q[i].of) || !seen_.insert(of_q[i].of).second) continue;
      if (kv_divides) throughout(of_q[i].says, of_q[i].of, of_kv[i].of);
      results_alone(of_q[i].says, of_q[i].of);
      if (kv_divides && !is_identity(of_kv[i].of)) keys_alone(of_q[i].says, of_kv[i].of);
      queries_alone(of_q[i].says, of_q[i].of);
    }
  }

  // The heads are exchanged when inputs are sent, and not put back in order when results return.
  void throughout(const std::string& says, const Map& q, const Map& kv) {
    for (const bool bias_too : {true, false}) {
      for (const bool sink_too : {false, true}) {
        if ((!bias_too && !c_.bias) || (sink_too && c_.softmax != SoftmaxType::learnable)) continue;
        // delta may be computed before or after the exchange.
        for (const bool exchanged_delta : {true, false}) {
          model("heads_exchanged", says, [=, group = group_](Model& model) {
            for (Pass* const pass : {&model.forward, &model.backward}) {
              pass->q_head = q;
              pass->dout_head = q;
              for (std::size_t h = 0; h < q.size(); ++h) pass->kv_head[h] = kv[h / static_cast<std::size_t>(group)];
              if (bias_too && !pass->bias_head.empty() && model.world->bias.size(1) > 1) pass->bias_head = q;
              if (sink_too) pass->sink_head = q;
            }
            // dbias, like the other results, is returned at the head that computed it.
            model.dbias_lands_at_own_head = bias_too;
            if (exchanged_delta) model.delta_head = q;
            model.dkv_head = mapped(static_cast<std::int64_t>(q.size()), [group](std::int64_t h) { return h / group; });
          });
        }
      }
    }
  }

  // Only the results are exchanged. Gradients follow from the exchanged results, or are correct.
  void results_alone(const std::string& says, const Map& q) {
    const at::Tensor index = index_tensor(q);
    const auto change = [index](const World&, verify::Results& results) {
      results.out = results.out.index_select(1, index);
      results.lse = results.lse.index_select(1, index);
    };
    const auto change_out = [index](const World&, verify::Results& results) {
      results.out = results.out.index_select(1, index);
    };
    for (const bool lse_too : {true, false}) {
      for (const bool gradients_too : {true, false}) {
        model("heads_exchanged", "in the results only, " + says, [=](Model& model) {
          if (lse_too) {
            model.returned = change;
          } else {
            model.returned = change_out;
          }
          if (gradients_too) model.backward.dout_head = inverse(q);
        });
      }
    }
  }

  void keys_alone(const std::string& says, const Map& kv) {
    for (const bool lands_there : {true, false}) {
      model("heads_exchanged", "for K and V only, " + says, [=, group = group_](Model& model) {
        Map kv_of;
        for (std::int64_t h = 0; h < static_cast<std::int64_t>(model.forward.kv_head.size()); ++h)
          kv_of.push_back(kv[static_cast<std::size_t>(h / group)]);
        model.forward.kv_head = model.backward.kv_head = kv_of;
        if (lands_there) model.dkv_head = std::move(kv_of);
      });
    }
  }

  // Only queries are exchanged, and their results are put back in order.
  void queries_alone(const std::string& says, const Map& q) {
    model("heads_exchanged", "for queries only, " + says, [=, group = group_](Model& model) {
      Map kv_of(q.size());
      for (std::size_t h = 0; h < q.size(); ++h)
        kv_of[static_cast<std::size_t>(q[h])] = static_cast<std::int64_t>(h) / group;
      model.forward.kv_head = model.backward.kv_head = kv_of;
      model.dkv_head = std::move(kv_of);
    });
  }

  // In the backward, a block of heads computes with the inputs, or with the saved tensors, of another block.
  void repeated() {
    if (!c_.training) return;
    std::set<std::int64_t> blocks;
    for (std::int64_t of : {heads_, heads_ / std::max(1, head_ranks(c_))}) {
      for (const std::int64_t parts : {2, 4}) {
        if (of % parts == 0 && of / parts % group_ == 0) blocks.insert(of / parts);
      }
    }
    for (const std::int64_t block : blocks) {
      // The heads are computed in pieces of two or four blocks, and the first block of a piece is repeated.
      for (const std::int64_t parts : {2, 4}) {
        if (heads_ % (block * parts) != 0) continue;
        repeat(block,
               mapped(heads_, [=](std::int64_t h) { return h / (block * parts) * (block * parts) + h % block; }));
      }
    }
  }

  void repeat(std::int64_t block, const Map& from) {
    if (is_identity(from)) return;
    const char* const id = "backward_heads_repeated";
    const Map kv_of = mapped(heads_, [&](std::int64_t h) { return from[static_cast<std::size_t>(h)] / group_; });
    backward(id, fmt::format("in the backward, blocks of {} heads use q, k, v and lse of the first block", block),
             [=](Model& model) {
               model.backward.q_head = from;
               model.backward.kv_head = kv_of;
               model.lse_head = from;
               model.delta_head = mapped(static_cast<std::int64_t>(from.size()), std::identity());
             });
    results(id, fmt::format("in the backward, blocks of {} heads compute the first block again", block),
            [=, group = group_](const World&, WholeResults& results) {
              const at::Tensor q = index_tensor(from);
              Map of_kv;
              for (std::size_t h = 0; h < from.size(); h += static_cast<std::size_t>(group))
                of_kv.push_back(from[h] / group);
              results.dq = results.dq.index_select(1, q);
              results.dk = results.dk.index_select(1, index_tensor(of_kv));
              results.dv = results.dv.index_select(1, index_tensor(of_kv));
            });
    // The same, but only for the rank's own keys.
    sums(id,
         fmt::format("in the backward, for a rank's own keys only, blocks of {} heads compute the first block again",
                     block),
         [=, group = group_](Model& model) {
           model.sums = [=](const Model& of, const Backward& backward, bool absolute, verify::Results& results) {
             repeat_own(of, backward, absolute, from, group, results);
           };
         });
  }

  static void repeat_own(const Model& of, const Backward& backward, bool absolute, const Map& from, std::int64_t group,
                         verify::Results& results);

  std::int64_t heads_;
  std::int64_t kv_heads_;
  std::int64_t group_;
  std::vector<std::int64_t> block_counts_;
  std::set<std::pair<std::string, Map>> read_maps_;  // with their ids
  std::set<Map> seen_;
};

void Heads::repeat_own(const Model& of, const Backward& backward, bool absolute, const Map& from, std::int64_t group,
                       verify::Results& results) {
  const World& world = *of.world;
  const at::Tensor own = world.q_rows.rank.unsqueeze(1).eq(world.kv_rows.rank.unsqueeze(0)).to(at::kDouble);
  Model some = of;
  some.sums = {};
  const auto sum = [&](const at::Tensor& weight) {
    verify::Results sums = results;
    some.weight_dq = some.weight_dk = some.weight_dv = weight;
    sum_by(some, backward, absolute, sums);
    return sums;
  };
  const verify::Results of_own = sum(own);
  results = sum(own.mul(-1).add(1));
  Map of_kv;
  for (std::size_t h = 0; h < from.size(); h += static_cast<std::size_t>(group)) of_kv.push_back(from[h] / group);
  results.dq = results.dq.add(of_own.dq.index_select(1, index_tensor(from)));
  results.dk = results.dk.add(of_own.dk.index_select(1, index_tensor(of_kv)));
  results.dv = results.dv.add(of_own.dv.index_select(1, index_tensor(of_kv)));
}

}  // namespace

Hypotheses head_hypotheses(const World& world, const Symptoms& symptoms) {
  return Heads(world, symptoms).all();
}

}  // namespace cp_pool::diagnosis
