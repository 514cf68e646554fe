// Mistakes in which heads of the inputs a head computes with, and in which heads its results are returned.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/rank_parts.h"
#include "cp_core/diagnosis/simulated_step.h"

namespace cp_pool::diagnosis {
namespace {

HeadMap identity(std::size_t heads) {
  return mapped(static_cast<std::int64_t>(heads), std::identity());
}

HeadMap inverse(const HeadMap& map) {
  HeadMap back(map.size());
  for (std::size_t h = 0; h < map.size(); ++h) back[static_cast<std::size_t>(map[h])] = static_cast<std::int64_t>(h);
  return back;
}

class Heads : Subject {
 public:
  Heads(const DenseProblem& dense, const Symptoms& symptoms) : Subject(dense, symptoms) {
    for (const std::int64_t count : std::set<std::int64_t>{dense.ranks, head_ranks(c_)}) {
      if (count > 1 && heads_ % count == 0) block_counts_.push_back(count);
    }
  }

  Hypotheses all() {
    if (kv_heads_ > 1) key_heads();
    for (const std::int64_t blocks : block_counts_) exchanged(blocks);
    if (c_.training) repeated();
    return std::move(all_);
  }

 private:
  // Query heads read wrong key-value heads. Gradients land at the heads that were read, or at those that should have
  // been read.
  void read(const std::string& id, const std::string& says, const HeadMap& kv_of) {
    if (kv_of == own_ || !read_maps_.emplace(id, kv_of).second) return;
    for (const bool lands_there : {true, false}) {
      for (const bool backward_alone : {false, true}) {
        model(
            id, fmt::format("{}{}", backward_alone ? "in the backward only, " : "", says),
            [kv_of, lands_there, backward_alone](SimulatedStep& model) {
              if (!backward_alone) model.forward.kv_head = kv_of;
              model.backward.kv_head = kv_of;
              if (lands_there) model.dkv_head = kv_of;
            },
            backward_alone ? Hypothesis::Level::backward : Hypothesis::Level::forward);
      }
    }
  }

  void key_heads() {
    if (group_ > 1) {
      std::set<std::int64_t> counts{1};
      for (const std::int64_t blocks : block_counts_) {
        if (kv_heads_ % blocks == 0 && kv_heads_ > blocks) counts.insert(blocks);
      }
      for (const std::int64_t blocks : counts) interleaved(blocks);
      k_or_v_interleaved();
    }
    for (const std::int64_t group : {group_ * 2, group_ + 1, std::max<std::int64_t>(1, group_ / 2)}) {
      read("kv_group_size_wrong", fmt::format("{} query heads read each key-value head instead of {}", group, group_),
           mapped(heads_, [=, this](std::int64_t h) { return h / group % kv_heads_; }));
    }
    read("kv_head_repeated", "all query heads read key-value head 0", mapped(heads_, [](std::int64_t) { return 0; }));
  }

  // In each of `blocks` blocks of heads, the heads are ordered [group, kv heads].
  void interleaved(std::int64_t blocks) {
    const std::int64_t block = heads_ / blocks;
    const std::int64_t kv_block = kv_heads_ / blocks;
    const std::string says =
        fmt::format("{}query head h reads key-value head h % {} instead of h / {}",
                    blocks == 1 ? "" : fmt::format("in each of {} blocks of heads, ", blocks), kv_block, group_);
    read("kv_heads_interleaved", says,
         mapped(heads_, [=](std::int64_t h) { return h / block * kv_block + h % block % kv_block; }));
    // The same for q, out, dout and dq, but lse, delta, bias and max_logit are ordered [kv heads, group].
    const HeadMap read = mapped(
        heads_, [=, this](std::int64_t h) { return h / block * block + h % group_ * kv_block + h % block / group_; });
    model("kv_heads_interleaved", says + ", and the lse of head h is stored at another head",
          [read](SimulatedStep& model) {
            model.forward.q_head = model.backward.q_head = read;
            model.forward.dout_head = model.backward.dout_head = read;
            model.dq_head = read;
            model.delta_head = identity(read.size());
            model.returned = [index = index_tensor(inverse(read))](const DenseProblem&, verify::Results& results) {
              results.out = results.out.index_select(1, index);
            };
            model.from_returned = true;
          });
  }

  // Only K, or only V, is repeated as a whole. Its gradients are summed in the same way, or as defined.
  void k_or_v_interleaved() {
    const HeadMap tiled = mapped(heads_, [this](std::int64_t h) { return h % kv_heads_; });
    for (const bool k : {true, false}) {
      for (const bool lands_there : {true, false}) {
        model("kv_heads_interleaved",
              fmt::format("query head h reads {0} of key-value head h % {1}, and {2} of head h / {3}", k ? "K" : "V",
                          kv_heads_, k ? "V" : "K", group_),
              [=, own = own_](SimulatedStep& model) {
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
           [=, own = own_, dk = dk, dv = dv](SimulatedStep& model) {
             model.dk_head = dk ? tiled : own;
             model.dkv_head = dv ? tiled : own;
           });
    }
  }

  void exchanged(std::int64_t blocks) {
    if (kv_heads_ % blocks != 0) return;
    const std::vector<WrongHeads> of_q = exchanged_heads(heads_, blocks);
    const std::vector<WrongHeads> of_kv = exchanged_heads(kv_heads_, blocks);
    for (std::size_t i = 0; i < of_q.size(); ++i) {
      const auto& [says, q] = of_q[i];
      if (q == identity(q.size()) || !seen_.insert(q).second) continue;
      // For each query head that computes, the head of K and V that it gets.
      throughout(says, q, mapped(heads_, [&, this](std::int64_t h) {
                   return of_kv[i].of[static_cast<std::size_t>(h / group_)];
                 }));
      if (failing_.empty()) continue;
      each("heads_exchanged", fmt::format("in {} only, {}", fmt::join(failing_, " and "), says), failing_,
           [index = index_tensor(q)](const DenseProblem&, Member, const at::Tensor& result) {
             return result.size(1) == index.numel() ? result.index_select(1, index) : result;
           });
    }
  }

  // The heads are exchanged when inputs are sent, and not put back in order when results return.
  void throughout(const std::string& says, const HeadMap& q, const HeadMap& kv) {
    for (const bool bias_too : {true, false}) {
      for (const bool sink_too : {false, true}) {
        if ((!bias_too && !c_.bias) || (sink_too && c_.softmax != SoftmaxType::learnable)) continue;
        // delta may be computed before or after the exchange.
        for (const bool exchanged_delta : {true, false}) {
          model("heads_exchanged", says, [=, own = own_](SimulatedStep& model) {
            for (Pass* const pass : {&model.forward, &model.backward}) {
              pass->q_head = pass->dout_head = q;
              pass->kv_head = kv;
              if (bias_too && !pass->bias_head.empty() && model.dense->bias.size(1) > 1) pass->bias_head = q;
              if (sink_too) pass->sink_head = q;
            }
            // dbias, like the other results, is returned at the head that computed it.
            model.dbias_lands_at_own_head = bias_too;
            if (exchanged_delta) model.delta_head = q;
            model.dkv_head = own;
          });
        }
      }
    }
  }

  // In the backward, the heads are computed in pieces of two or four blocks, and all blocks of a piece compute with the
  // inputs, or with the saved tensors, of its first block.
  void repeated() {
    std::set<std::int64_t> blocks;
    for (const std::int64_t of : {heads_, heads_ / std::max(1, head_ranks(c_))}) {
      for (const std::int64_t parts : {2, 4}) {
        if (of > 0 && of % parts == 0 && of / parts % group_ == 0) blocks.insert(of / parts);
      }
    }
    for (const std::int64_t block : blocks) {
      for (const std::int64_t piece : {2 * block, 4 * block}) {
        const HeadMap from = mapped(heads_, [=](std::int64_t h) { return h / piece * piece + h % block; });
        if (heads_ % piece == 0 && from != identity(from.size())) repeat(block, from);
      }
    }
  }

  void repeat(std::int64_t block, const HeadMap& from) {
    const char* const id = "backward_heads_repeated";
    const HeadMap kv_of = mapped(heads_, [&](std::int64_t h) { return from[static_cast<std::size_t>(h)] / group_; });
    const HeadMap of_kv =
        mapped(kv_heads_, [&](std::int64_t h) { return kv_of[static_cast<std::size_t>(h * group_)]; });
    backward(id, fmt::format("in the backward, blocks of {} heads use q, k, v and lse of the first block", block),
             [=](SimulatedStep& model) {
               model.backward.q_head = model.lse_head = from;
               model.backward.kv_head = kv_of;
               model.delta_head = identity(from.size());
             });
    const auto computed_again = [q = index_tensor(from), kv = index_tensor(of_kv)](WholeResults& results) {
      results.dq = results.dq.index_select(1, q);
      results.dk = results.dk.index_select(1, kv);
      results.dv = results.dv.index_select(1, kv);
    };
    results(id, fmt::format("in the backward, blocks of {} heads compute the first block again", block),
            [=](const DenseProblem&, WholeResults& results) { computed_again(results); });
    // The same, but only for the rank's own keys.
    sums(id,
         fmt::format("in the backward, for a rank's own keys only, blocks of {} heads compute the first block again",
                     block),
         [=](SimulatedStep& model) {
           model.sums = [=](const SimulatedStep& of, const Backward& backward, bool absolute, WholeResults& results) {
             const DenseProblem& dense = *of.dense;
             const at::Tensor own = dense.q_rows.rank.unsqueeze(1).eq(dense.kv_rows.rank.unsqueeze(0));
             SimulatedStep some = of;
             some.weight_dq = some.weight_dk = some.weight_dv = own.to(at::kDouble);
             WholeResults of_own = results;
             sum_gradients(some, backward, absolute, of_own);
             computed_again(of_own);
             some.weight_dq = some.weight_dk = some.weight_dv = own.logical_not().to(at::kDouble);
             sum_gradients(some, backward, absolute, results);
             for (const auto member : {&WholeResults::dq, &WholeResults::dk, &WholeResults::dv}) {
               results.*member = (results.*member).add(of_own.*member);
             }
           };
         });
  }

  const std::int64_t heads_ = c_.heads;
  const std::int64_t kv_heads_ = c_.kv_heads;
  const std::int64_t group_ = dense_.group();
  const HeadMap own_ = defined_kv_heads(c_);  // the key-value head of each query head
  const std::vector<std::string> failing_ = symptoms_.failing_of({"out", "lse", "dq"});
  std::vector<std::int64_t> block_counts_;
  std::set<std::pair<std::string, HeadMap>> read_maps_;  // with their ids
  std::set<HeadMap> seen_;
};

}  // namespace

Hypotheses head_hypotheses(const DenseProblem& dense, const Symptoms& symptoms) {
  return Heads(dense, symptoms).all();
}

}  // namespace cp_pool::diagnosis
