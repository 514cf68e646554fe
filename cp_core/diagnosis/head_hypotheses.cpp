// Mistakes in which heads of the inputs a head computes with, and in which heads its results are returned.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/ones_like.h>
#include <fmt/format.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/rank_parts.h"

namespace cp_pool::diagnosis {
namespace {

HeadMap identity(std::size_t heads) {
  return mapped(static_cast<std::int64_t>(heads), std::identity());
}

class Heads : public Subject {
 public:
  Heads(const DenseProblem& dense, const Symptoms& symptoms) : Subject(dense, symptoms) {
    if (kv_heads_ > 1) key_heads();
    for (const std::int64_t blocks : block_counts_) exchanged(blocks);
    if (has_uneven_heads(c_)) uneven();
    if (c_.training) repeated();
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
            model.returned = [index = index_tensor(read).argsort()](const DenseProblem&, verify::Results& results) {
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

  // Ranks that trade tokens for heads which they do not divide get the key-value heads that their query heads read.
  void uneven() {
    const int ranks = head_ranks(c_);
    HeadMap slots;    // the key-value heads of all ranks
    HeadMap rank_of;  // the rank of each query head
    for (int rank = 0; rank < ranks; ++rank) {
      const HeadShare share = head_share(heads_, kv_heads_, ranks, rank);
      slots.insert(slots.end(), share.kv.begin(), share.kv.end());
      rank_of.insert(rank_of.end(), static_cast<std::size_t>(share.count), rank);
    }
    const at::Tensor twice = index_tensor(slots).bincount().gt(1).add(1).view({1, -1, 1});
    each("gradient_times_ranks", "dk and dv of key-value heads that several ranks have count twice", {"dk", "dv"},
         [twice](const DenseProblem&, Member, const at::Tensor& gradient) { return gradient.mul(twice); });
    repeated_over_tokens(static_cast<std::int64_t>(slots.size()));
    // Of a number of heads that is padded to a multiple of the ranks, each rank gets as many.
    const auto padded = [ranks](std::int64_t count) { return (count + ranks - 1) / ranks * ranks; };
    const std::int64_t group = padded(heads_) / padded(kv_heads_);
    const HeadMap kv_of = mapped(heads_, [=, this](std::int64_t h) { return std::min(h / group, kv_heads_); });
    model("kv_group_size_wrong",
          fmt::format(
              "query heads and key-value heads are each padded to a multiple of {} ranks: {} query heads read each "
              "key-value head instead of {}, and the last ones zeros",
              ranks, group, group_),
          [kv_of](SimulatedStep& model) {
            for (Pass* const pass : {&model.forward, &model.backward}) {
              pass->k = at::constant_pad_nd(model.dense->k, {0, 0, 0, 1});
              pass->v = at::constant_pad_nd(model.dense->v, {0, 0, 0, 1});
              pass->kv_head = kv_of;
            }
            model.dkv_head = kv_of;
          });
    if (kv_heads_ >= ranks) return;
    const at::Tensor rank = index_tensor(rank_of);
    for (std::int64_t& kv_head : rank_of) kv_head = std::min(kv_head, kv_heads_ - 1);
    model("kv_heads_split_apart", "each key-value head is on one of the first ranks, and the other ranks have none",
          [rank_of, has = rank.lt(kv_heads_).view({-1, 1, 1})](SimulatedStep& model) {
            for (Pass* const pass : {&model.forward, &model.backward}) {
              pass->kv_head = rank_of;
              pass->times = pass->times.mul(has);
            }
            model.dkv_head = rank_of;
          });
  }

  // Each rank repeats its rows until there are `slots` heads, and reshapes them.
  void repeated_over_tokens(std::int64_t slots) {
    if (slots % kv_heads_ != 0) return;
    pass("kv_repeated_over_tokens",
         "key-value heads that several ranks need are repeated along the tokens, and reshaped",
         [=, times = slots / kv_heads_](const DenseProblem& dense, Pass& pass) {
           for (const auto& [of_heads, from] : {std::pair{&pass.k, dense.k}, {&pass.v, dense.v}}) {
             std::vector<at::Tensor> parts = from.chunk(dense.ranks);
             for (at::Tensor& part : parts) part = part.repeat({times, 1, 1}).view({part.size(0), slots, part.size(2)});
             *of_heads = at::cat(parts);
           }
           pass.kv_head = mapped(dense.c().heads, [&](std::int64_t h) { return h * slots / dense.c().heads; });
         });
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
    // The first block is computed again instead, for all keys or for a rank's own keys only.
    for (const bool own_alone : {false, true}) {
      sums(id,
           fmt::format("in the backward{}, blocks of {} heads compute the first block again",
                       own_alone ? ", for a rank's own keys only" : "", block),
           [=, q = index_tensor(from), kv = index_tensor(of_kv)](SimulatedStep& model) {
             model.sums = [=](const SimulatedStep& of, const Backward& backward, bool absolute, WholeResults& results) {
               const DenseProblem& dense = *of.dense;
               const at::Tensor own = dense.q_rows.rank.unsqueeze(1).eq(dense.kv_rows.rank.unsqueeze(0));
               const at::Tensor again = own_alone ? own.to(at::kDouble) : at::ones_like(own, at::kDouble);
               SimulatedStep some = of;
               some.weight_dq = some.weight_dk = some.weight_dv = again;
               WholeResults of_first = results;
               sum_gradients(some, backward, absolute, of_first);
               some.weight_dq = some.weight_dk = some.weight_dv = again.neg().add(1.0);
               sum_gradients(some, backward, absolute, results);
               results.dq.add_(of_first.dq.index_select(1, q));
               results.dk.add_(of_first.dk.index_select(1, kv));
               results.dv.add_(of_first.dv.index_select(1, kv));
             };
           });
    }
  }

  const std::int64_t heads_ = c_.heads;
  const std::int64_t kv_heads_ = c_.kv_heads;
  const std::int64_t group_ = dense_.group();
  const HeadMap own_ = defined_kv_heads(c_);  // the key-value head of each query head
  const std::vector<std::string> failing_ = symptoms_.failing_of({"out", "lse", "dq"});
  const std::set<std::int64_t> block_counts_ = block_counts(dense_, heads_);
  std::set<std::pair<std::string, HeadMap>> read_maps_;  // with their ids
  std::set<HeadMap> seen_;
};

}  // namespace

Hypotheses head_hypotheses(const DenseProblem& dense, const Symptoms& symptoms) {
  return Heads(dense, symptoms).all();
}

}  // namespace cp_pool::diagnosis
