// Mistakes in the steps of a ring and in the exchange of data between ranks.
#include <functional>
#include <string>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/rank_parts.h"

namespace cp_pool::diagnosis {
namespace {

// Maps a rank and the owner of some rows to another rank.
using OtherRank = std::function<int(int rank, int owner)>;

class RingSteps : public Subject {
 public:
  RingSteps(const DenseProblem& dense, const Symptoms& symptoms) : Subject(dense, symptoms) {
    if (dense_.ranks == 1) return;
    for (const Ring& ring : rings_of(dense_)) {
      if (ring.size == 1) continue;
      owners(ring);
      missing(ring);
      repeated(ring);
      own_keys(ring);
      not_awaited(ring);
      exchanged(ring);
    }
    if (c_.head_dim_qk == c_.head_dim_v) {
      pass("k_and_v_exchanged", "K is also used as V", [](const DenseProblem& of, Pass& pass) { pass.v = of.k; });
      pass("k_and_v_exchanged", "V is also used as K", [](const DenseProblem& of, Pass& pass) { pass.k = of.v; });
    }
    halves();
    smaller_groups();
    heads_not_awaited();
  }

 private:
  // A rank takes the keys that it holds for those of the rank other(rank, true owner).
  void owner_taken_for(const std::string& says, const OtherRank& other) {
    const at::Tensor places = rows_at_same_place(dense_.kv_rows, dense_.ranks, other);
    if (!places.defined()) return;
    pass("ring_owner_wrong", says, [places](const DenseProblem& dense, Pass& pass) {
      const at::Tensor index = places.index_select(0, dense.q_rows.rank);
      pass.times = pass.times.gather(1, index);
      if (pass.bias_index.defined()) pass.bias_index = pass.bias_index.gather(1, index);
    });
  }

  void owners(const Ring& ring) {
    owner_taken_for(
        "the ring turns in the wrong direction: a rank takes the keys that it holds for those of another rank",
        [=](int rank, int owner) { return ring.rank_at(owner, ring.at(rank) + ring.step(rank, owner)); });
    for (const int off : {-1, 1}) {
      const char* const whose = off < 0 ? "before" : "after";
      owner_taken_for(fmt::format("a rank takes the keys that it holds for those of the rank {} their owner", whose),
                      [=](int, int owner) { return ring.rank_at(owner, ring.at(owner) + off); });
      // A rank's own keys are correct, and the others are shifted among themselves.
      owner_taken_for(fmt::format("a rank takes the keys of other ranks for those of the rank {} their owner", whose),
                      [=](int rank, int owner) {
                        const int of = ring.step(rank, owner);
                        if (of == 0) return owner;
                        return ring.rank_at(owner, ring.at(rank) - modulo(of - 1 - off, ring.size - 1) - 1);
                      });
    }
    owner_taken_for("at every step a rank takes the keys that it holds for its own",
                    [=](int rank, int owner) { return ring.rank_at(owner, ring.at(rank)); });
  }

  static std::string name_of(int step, const Ring& ring) {
    if (step == 0) return "the part of a rank's own keys";
    if (ring.size == 2) return "the part of the other rank's keys";
    return fmt::format("step {} of the ring", step);
  }

  // Each pair counts as often as `factor` says, fp64.
  Hypothesis& weighed(const char* id, std::string says, const at::Tensor& factor) {
    return pass(id, std::move(says), [factor](const DenseProblem& dense, Pass& pass) {
      pass.times = pass.times.mul(factor.index_select(0, dense.q_rows.row));
    });
  }

  // The merged lse counts the part, but the merged out does not.
  void not_merged(const std::string& part, const at::Tensor& gone) {
    model("step_missing", part + " is not merged into the result, though the lse counts it",
          [number = gone.to(at::kLong)](SimulatedStep& model) {
            model.part = number.index_select(0, model.dense->q_rows.row);
            model.parts = 2;
            model.merge = [](const at::Tensor& lse, const at::Tensor& part_lse, bool first) {
              Merge merge = merge_rightly(lse, part_lse, first);
              if (!first) merge.add = at::zeros_like(merge.add);
              return merge;
            };
            model.merges_rightly = false;
          });
  }

  void missing(const Ring& ring) {
    const at::Tensor steps = step_of_pairs(dense_, ring);
    const auto without = [this](const std::string& part, const at::Tensor& gone) {
      weighed("step_missing", part + " left out", gone.logical_not().to(at::kDouble)).backward_id =
          "gradient_share_missing";
    };
    for (int step = 0; step < ring.size; ++step) without(name_of(step, ring) + " is", steps.eq(step));
    for (int last = 0; last + 2 < ring.size; ++last) {
      without(last == 0 ? "all steps except that of a rank's own keys are"
                        : fmt::format("all steps after step {} of the ring are", last),
              steps.gt(last));
    }
  }

  // Neighbouring ranks, or ranks at equal distances, exchange keys among themselves alone.
  void smaller_groups() {
    for (int size = 2; size < dense_.ranks; ++size) {
      if (dense_.ranks % size != 0) continue;
      for (const bool neighbours : {true, false}) {
        const auto group_of = [&](const at::Tensor& rank) {
          return neighbours ? rank.div(size, "floor") : rank.remainder(dense_.ranks / size);
        };
        const at::Tensor same =
            group_of(dense_.q_rows.rank).unsqueeze(1).eq(group_of(dense_.kv_rows.rank).unsqueeze(0));
        weighed(
            "group_of_other_ranks",
            fmt::format("only groups of {} {} ranks exchange K and V", size, neighbours ? "neighbouring" : "distant"),
            same.to(at::kDouble));
      }
    }
  }

  // The part of one chunk of queries with the keys of other ranks is not merged, or computed in place of the other's.
  void halves() {
    const at::Tensor others = dense_.q_rows.rank.unsqueeze(1).ne(dense_.kv_rows.rank.unsqueeze(0));
    // In a causal ring of dual chunks, these are the steps in which only the second chunk takes part.
    not_merged("the part of a rank's second chunk of queries with the keys of later ranks",
               dense_.q_rows.half.eq(1).unsqueeze(1).logical_and(
                   dense_.q_rows.rank.unsqueeze(1).lt(dense_.kv_rows.rank.unsqueeze(0))));
    for (const std::int64_t half : {0, 1}) {
      const char* const which = half == 0 ? "first" : "second";
      const at::Tensor queries = dense_.q_rows.half.eq(half).unsqueeze(1).logical_and(others);
      const std::string part =
          fmt::format("the part of a rank's {} chunk of queries with the keys of other ranks", which);
      not_merged(part, queries);
      weighed("step_repeated", "instead of " + part + ", the part of the other chunk is computed again",
              at::where(others, at::where(queries, 0.0, 2.0), 1.0));
    }
  }

  void repeated(const Ring& ring) {
    const char* const id = "step_repeated";
    const at::Tensor steps = step_of_pairs(dense_, ring);
    for (int step = 0; step < ring.size; ++step) {
      weighed(id, name_of(step, ring) + " counts twice", steps.eq(step).to(at::kDouble).add(1.0));
    }
    weighed(id, "the part of a rank's own keys counts at every step",
            at::where(steps.eq(0), static_cast<double>(ring.size), 1.0));
  }

  // A rank holds the K and V of rank whose(rank, owner) at the places of rank `owner`, in both passes or in the
  // backward.
  void held(const char* id, const std::string& says, const OtherRank& whose, const char* backward_id) {
    const at::Tensor rows = rows_at_same_place(dense_.kv_rows, dense_.ranks, whose);
    if (!rows.defined()) return;
    pass(id, says, [rows](const DenseProblem&, Pass& pass) { pass.held = rows; }).backward_id = backward_id;
    for (const bool both : {true, false}) {  // gradients land at the rows that are held
      model(
          both ? id : backward_id, both ? says : "in the backward only, " + says,
          [=](SimulatedStep& model) {
            if (both) model.forward.held = rows;
            model.backward.held = model.landing = rows;
          },
          both ? Hypothesis::Level::forward : Hypothesis::Level::backward);
    }
  }

  void own_keys(const Ring& ring) {
    const char* const id = "own_kv_every_step";
    const char* const says = "every step computes with the rank's own K and V";
    const OtherRank own = [=](int rank, int owner) { return ring.rank_at(owner, ring.at(rank)); };
    held(id, says, own, "backward_own_kv");
    // Only one of K and V is passed on; the other one stays the rank's own.
    const at::Tensor rows = rows_at_same_place(dense_.kv_rows, dense_.ranks, own);
    if (!rows.defined()) return;
    for (const bool k : {false, true}) {
      pass("k_or_v_not_passed_on",
           fmt::format("every step computes with the rank's own {}, and with the {} of the rank whose turn it is",
                       k ? "K" : "V", k ? "V" : "K"),
           [rows, k](const DenseProblem& dense, Pass& pass) {
             const at::Tensor places = dense.kv_rows.row.unsqueeze(0).expand_as(rows);
             pass.held = k ? rows : places;
             pass.held_v = k ? places : rows;
           });
    }
  }

  void not_awaited(const Ring& ring) {
    const at::Tensor rows = dense_.kv_rows.row.unsqueeze(0).expand({dense_.ranks, -1});
    const at::Tensor of_others = steps_of_ranks(dense_, ring).ne(0);
    const auto zeros = [&](const std::string& whose, const at::Tensor& where) {
      pass("exchange_not_awaited", fmt::format("K and V of {} are read as zeros before they arrive", whose),
           [held = rows.masked_fill(where, -1)](const DenseProblem&, Pass& pass) { pass.held = held; });
    };
    zeros("other ranks", of_others);
    for (int rank = 0; rank < dense_.ranks; ++rank) {
      zeros(fmt::format("rank {}", rank), of_others.logical_and(dense_.kv_rows.rank.eq(rank)));
    }
  }

  // K and V are exchanged in transit: at every step, or once.
  void exchanged(const Ring& ring) {
    if (c_.head_dim_qk != c_.head_dim_v) return;
    const auto swapped = [this](const char* says, const at::Tensor& where) {
      pass("k_and_v_exchanged", says, [where](const DenseProblem&, Pass& pass) { pass.exchanged = where; });
    };
    const at::Tensor steps = steps_of_ranks(dense_, ring);
    swapped("K and V of other ranks are swapped", steps.ne(0));
    if (ring.size > 2) swapped("K and V are swapped at every step of the ring", steps.remainder(2).eq(1));
  }

  // In an all-to-all of tokens for heads, a rank has its own tokens for its heads, and zeros for the tokens of others.
  void heads_not_awaited() {
    const int ranks = head_ranks(c_);
    if (ranks == 1 || c_.kv_heads % ranks != 0) return;
    model("exchange_not_awaited",
          "tokens of other ranks are read as zeros before their heads arrive, and so are the results",
          [ranks](SimulatedStep& model) { read_own_heads(ranks, model); });
  }

  // fp64 [rows, heads, 1]: 1 where the row belongs to the rank that computes the head, else 0.
  static at::Tensor own_heads(const Side& side, std::int64_t heads, int ranks) {
    const at::Tensor computes = at::arange(heads, at::kLong).div(heads / ranks, "floor");
    return side.rank.remainder(ranks).unsqueeze(1).eq(computes.unsqueeze(0)).to(at::kDouble).unsqueeze(-1);
  }

  static void read_own_heads(int ranks, SimulatedStep& model) {
    const DenseProblem& dense = *model.dense;
    const Case& c = dense.c();
    const at::Tensor q = own_heads(dense.q_rows, c.heads, ranks);
    const at::Tensor kv = own_heads(dense.kv_rows, c.kv_heads, ranks);
    for (Pass* const pass : {&model.forward, &model.backward}) {
      pass->q = dense.q.mul(q);
      pass->k = dense.k.mul(kv);
      pass->v = dense.v.mul(kv);
      if (dense.dout.defined()) pass->dout = dense.dout.mul(q);
      pass->q_poisoned = at::zeros_like(dense.q_rows.poisoned);
      pass->kv_poisoned = at::zeros_like(dense.kv_rows.poisoned);
    }
    model.returned = [q](const DenseProblem&, verify::Results& results) {
      results.out = results.out.mul(q);
      results.lse = at::where(q.ne(0.0), results.lse, 0.0);
    };
    model.returned_gradients = [q, kv](const DenseProblem&, verify::Results& results) {
      results.dq = results.dq.mul(q);
      results.dk = results.dk.mul(kv);
      results.dv = results.dv.mul(kv);
    };
  }
};

}  // namespace

Hypotheses ring_hypotheses(const DenseProblem& dense, const Symptoms& symptoms) {
  return RingSteps(dense, symptoms).all();
}

}  // namespace cp_pool::diagnosis
