// Mistakes in the steps of a ring and in the exchange of data between ranks.
#include <functional>
#include <string>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/rank_parts.h"
#include "cp_core/diagnosis/subject.h"

namespace cp_pool::diagnosis {
namespace {

class RingSteps : Subject {
 public:
  using Subject::Subject;

  Hypotheses all() {
    if (world_.ranks == 1) return {};
    for (const Ring& ring : rings_of(world_)) {
      if (ring.size == 1) continue;
      owners(ring);
      missing(ring);
      repeated(ring);
      own_keys(ring);
      not_awaited(ring);
      exchanged(ring);
    }
    missing_halves();
    heads_not_awaited();
    return std::move(all_);
  }

 private:
  // A rank takes the keys that it holds for those of another rank. other: maps the rank and the true owner to the rank
  // whose keys they are taken for.
  void owner_taken_for(const std::string& says, const std::function<int(int rank, int owner)>& other) {
    const at::Tensor places = rows_at_same_place(world_.kv_rows, world_.ranks, other);
    if (!places.defined()) return;
    pass("ring_owner_wrong", says, [places](const World& world, Pass& pass) {
      const at::Tensor index = places.index_select(0, world.q_rows.rank);
      pass.times = pass.times.gather(1, index);
      if (pass.bias_index.defined()) pass.bias_index = pass.bias_index.gather(1, index);
    });
  }

  // Returns the rank at a place of the ring (taken modulo its size) that has the same heads as rank `like`.
  static int rank_at(const Ring& ring, int like, int place) {
    const auto ranks = static_cast<int>(ring.place.size());
    const int of_place = ranks / ring.size;
    const int wrapped = ((place % ring.size) + ring.size) % ring.size;
    return wrapped * of_place + like % of_place;
  }

  void owners(const Ring& ring) {
    const auto at = [ring](int rank) { return ring.place[static_cast<std::size_t>(rank)]; };
    const auto step = [ring, at](int rank, int owner) {
      return ((at(rank) - at(owner)) % ring.size + ring.size) % ring.size;
    };
    owner_taken_for(
        "the ring turns in the wrong direction: a rank takes the keys that it holds for those of another rank",
        [=](int rank, int owner) { return rank_at(ring, owner, at(rank) + step(rank, owner)); });
    for (const int off : {-1, 1}) {
      const char* const whose = off < 0 ? "before" : "after";
      owner_taken_for(fmt::format("a rank takes the keys that it holds for those of the rank {} their owner", whose),
                      [=](int /*rank*/, int owner) { return rank_at(ring, owner, at(owner) + off); });
      // A rank's own keys are correct, and the others are shifted among themselves.
      owner_taken_for(fmt::format("a rank takes the keys of other ranks for those of the rank {} their owner", whose),
                      [=](int rank, int owner) {
                        const int of = step(rank, owner);
                        if (of == 0) return owner;
                        const int others = ring.size - 1;
                        const int shifted = ((of - 1 - off) % others + others) % others + 1;
                        return rank_at(ring, owner, at(rank) - shifted);
                      });
    }
    owner_taken_for("at every step a rank takes the keys that it holds for its own",
                    [=](int rank, int owner) { return rank_at(ring, owner, at(rank)); });
  }

  static std::string name_of(int step, const Ring& ring) {
    if (step == 0) return "the part of a rank's own keys";
    if (ring.size == 2) return "the part of the other rank's keys";
    return fmt::format("step {} of the ring", step);
  }

  void missing(const std::string& says, std::function<void(const World&, Pass&)> change) {
    Hypothesis& hypothesis = pass("step_missing", says, std::move(change));
    hypothesis.backward_id = "gradient_share_missing";
    hypothesis.backward_says = says + " in the backward";
  }

  void missing(const Ring& ring) {
    const auto without = [](const at::Tensor& gone) {
      return [gone](const World& world, Pass& pass) {
        pass.times = pass.times.masked_fill(gone.index_select(0, world.q_rows.row), 0.0);
      };
    };
    const at::Tensor steps = step_of_pairs(world_, ring);
    for (int step = 0; step < ring.size; ++step) {
      missing(name_of(step, ring) + " is left out", without(steps.eq(step)));
    }
    if (ring.size > 2) {
      missing("all steps except that of a rank's own keys are left out", without(steps.ne(0)));
    }
    for (int owner = 0; owner < world_.ranks; ++owner) {
      missing(fmt::format("the part of rank {}'s keys is left out for the queries of other ranks", owner),
              without(world_.kv_rows.rank.eq(owner).unsqueeze(0).logical_and(steps.ne(0))));
    }
  }

  // The part of one chunk of queries or of keys is left out, for the keys of other ranks or of all ranks.
  void missing_halves() {
    const at::Tensor others = world_.q_rows.rank.unsqueeze(1).ne(world_.kv_rows.rank.unsqueeze(0));
    for (const std::int64_t half : {0, 1}) {
      const at::Tensor queries = world_.q_rows.half.eq(half).unsqueeze(1);
      const at::Tensor keys = world_.kv_rows.half.eq(half).unsqueeze(0);
      const char* const which = half == 0 ? "first" : "second";
      struct Part {
        std::string says;
        at::Tensor gone;
        at::Tensor instead;  // pairs that count twice; undefined: none
      };
      const at::Tensor other_queries = queries.logical_not();
      for (const Part& part :
           {Part{.says = fmt::format(
                     "the part of a rank's {} chunk of queries with the keys of other ranks is left out", which),
                 .gone = queries.logical_and(others),
                 .instead = {}},
            Part{.says = fmt::format("the part of each other rank's {} chunk of keys is left out", which),
                 .gone = keys.logical_and(others),
                 .instead = {}},
            Part{.says = fmt::format("the part of every rank's {} chunk of keys is left out", which),
                 .gone = keys.expand_as(others),
                 .instead = {}},
            Part{.says = fmt::format("instead of the part of a rank's {} chunk of queries with the keys of other "
                                     "ranks, the part of the other chunk is computed again",
                                     which),
                 .gone = queries.logical_and(others),
                 .instead = other_queries.logical_and(others)}}) {
        const auto change = [part](const World& world, Pass& pass) {
          const auto of_world = [&](const at::Tensor& pairs) { return pairs.index_select(0, world.q_rows.row); };
          pass.times = pass.times.masked_fill(of_world(part.gone), 0.0);
          if (part.instead.defined()) pass.times = pass.times.mul(of_world(part.instead).to(at::kDouble).add(1.0));
        };
        if (part.instead.defined()) {
          pass("step_repeated", part.says, change);
        } else {
          missing(part.says, change);
        }
      }
    }
  }

  void repeated(const Ring& ring) {
    const at::Tensor steps = step_of_pairs(world_, ring);
    const auto weighed = [](const at::Tensor& factor) {
      return [factor](const World& world, Pass& pass) {
        pass.times = pass.times.mul(factor.index_select(0, world.q_rows.row));
      };
    };
    for (int step = 0; step < ring.size; ++step) {
      pass("step_repeated", name_of(step, ring) + " counts twice", weighed(steps.eq(step).to(at::kDouble).add(1.0)));
      for (const int other : {step - 1, step + 1, 0}) {
        if (other < 0 || other >= ring.size || other == step || (other == 0 && step == 1 && ring.size > 2)) continue;
        const at::Tensor factor = steps.eq(other).to(at::kDouble).add(1.0).masked_fill(steps.eq(step), 0.0);
        pass("step_repeated", fmt::format("{} counts in place of {}", name_of(other, ring), name_of(step, ring)),
             weighed(factor));
      }
    }
    pass("step_repeated", "the part of a rank's own keys counts at every step",
         weighed(at::where(steps.eq(0), static_cast<double>(ring.size), 1.0)));
  }

  // A rank holds the K and V of rank whose(rank, owner) at the places of rank `owner`.
  void held(const std::string& id, const std::string& says, const std::function<int(int rank, int owner)>& whose,
            const std::string& backward_id = {}, const std::string& backward_says = {}) {
    const at::Tensor rows = rows_at_same_place(world_.kv_rows, world_.ranks, whose);
    if (!rows.defined()) return;
    for (const bool lands_there : {false, true}) {
      model(id, says, [rows, lands_there](Model& model) {
        model.forward.held = rows;
        model.backward.held = rows;
        if (lands_there) model.landing = rows;
      });
      backward(backward_id.empty() ? id : backward_id,
               backward_says.empty() ? says + " in the backward" : backward_says, [rows, lands_there](Model& model) {
                 model.backward.held = rows;
                 if (lands_there) model.landing = rows;
               });
    }
  }

  void own_keys(const Ring& ring) {
    const auto at = [ring](int rank) { return ring.place[static_cast<std::size_t>(rank)]; };
    const auto own = [=](int rank, int owner) { return rank_at(ring, owner, at(rank)); };
    held("own_kv_every_step", "every step computes with the rank's own K and V", own, "backward_own_kv",
         "every step of the backward computes with the rank's own K and V");
    // The same with the mask of the rank's own keys.
    const at::Tensor steps = step_of_pairs(world_, ring);
    pass("own_kv_every_step", "every step computes with the rank's own K and V and the mask of the own keys",
         [steps, size = ring.size](const World& world, Pass& pass) {
           const at::Tensor own_pairs = steps.index_select(0, world.q_rows.row).eq(0);
           pass.times = pass.times.mul(static_cast<double>(size)).masked_fill(own_pairs.logical_not(), 0.0);
         })
        .backward_id = "backward_own_kv";
    own_k_or_v(own);
  }

  // Only one of K and V is passed on; the other one stays the rank's own.
  void own_k_or_v(const std::function<int(int rank, int owner)>& own) {
    const at::Tensor rows = rows_at_same_place(world_.kv_rows, world_.ranks, own);
    if (!rows.defined()) return;
    for (const bool k : {false, true}) {
      pass("k_or_v_not_passed_on",
           fmt::format("every step computes with the rank's own {}, and with the {} of the rank whose turn it is",
                       k ? "K" : "V", k ? "V" : "K"),
           [rows, k](const World& world, Pass& pass) {
             const at::Tensor places = at::arange(world.kv_rows.count(), at::kLong).unsqueeze(0).expand_as(rows);
             pass.held = k ? rows : places;
             pass.held_v = k ? places : rows;
           });
    }
  }

  void not_awaited(const Ring& ring) {
    const char* const id = "exchange_not_awaited";
    const at::Tensor ranks = at::arange(world_.ranks, at::kLong);
    const at::Tensor rows = at::arange(world_.kv_rows.count(), at::kLong).unsqueeze(0).expand({world_.ranks, -1});
    const auto places = index_tensor({ring.place.begin(), ring.place.end()});
    const at::Tensor steps =
        places.unsqueeze(1).sub(places.index_select(0, world_.kv_rows.rank).unsqueeze(0)).remainder(ring.size);
    for (int first = 1; first < ring.size; ++first) {
      const at::Tensor zeros = rows.masked_fill(steps.ge(first), -1);
      const std::string whose =
          first == 1 ? "K and V of other ranks are" : fmt::format("from step {} of the ring on, K and V are", first);
      for (const bool both : {true, false}) {
        model(
            id, fmt::format("{} read as zeros before they arrive{}", whose, both ? "" : ", in the backward"),
            [zeros, both](Model& model) {
              if (both) model.forward.held = zeros;
              model.backward.held = zeros;
            },
            both ? Hypothesis::Level::forward : Hypothesis::Level::backward);
      }
    }
    if (ring.size == 2) return;  // the step before is then that of the rank's own keys
    const auto at = [ring](int rank) { return ring.place[static_cast<std::size_t>(rank)]; };
    const auto before = [=](int rank, int owner) {
      const int step = ((at(rank) - at(owner)) % ring.size + ring.size) % ring.size;
      return step == 0 ? owner : rank_at(ring, owner, at(rank) - step + 1);
    };
    held(id, "a step computes with the K and V of the previous step before new ones have arrived", before);
  }

  // K and V are exchanged in transit: at every step, or once.
  void exchanged(const Ring& ring) {
    if (c_.head_dim_qk != c_.head_dim_v) return;
    const auto places = index_tensor({ring.place.begin(), ring.place.end()});
    const at::Tensor steps =
        places.unsqueeze(1).sub(places.index_select(0, world_.kv_rows.rank).unsqueeze(0)).remainder(ring.size);
    const at::Tensor odd = steps.remainder(2).eq(1);
    const at::Tensor others = steps.ne(0);
    for (const at::Tensor& where : {odd, others}) {
      if (where.is_same(others) && odd.equal(others)) continue;
      pass("k_and_v_exchanged",
           where.is_same(odd) && !odd.equal(others) ? "K and V are swapped at every step of the ring"
                                                    : "K and V of other ranks are swapped",
           [where](const World&, Pass& pass) { pass.exchanged = where; });
    }
  }

  // In an all-to-all of tokens for heads, a rank has its own tokens for its heads, and zeros for the tokens of others.
  void heads_not_awaited() {
    const int ranks = head_ranks(c_);
    if (ranks == 1 || c_.kv_heads % ranks != 0) return;
    for (const bool returned : {true, false}) {
      model("exchange_not_awaited",
            fmt::format("tokens of other ranks are read as zeros before their heads arrive{}",
                        returned ? ", and so are the results" : ""),
            [ranks, returned](Model& model) { read_own_heads(ranks, returned, model); });
    }
  }

  // fp64 [rows, heads, 1]: 1 where the row belongs to the rank that computes the head, else 0.
  static at::Tensor own_heads(const Side& side, std::int64_t heads, int ranks) {
    const at::Tensor computes = at::arange(heads, at::kLong).div(heads / ranks, "floor");
    return side.rank.remainder(ranks).unsqueeze(1).eq(computes.unsqueeze(0)).to(at::kDouble).unsqueeze(-1);
  }

  static void read_own_heads(int ranks, bool returned, Model& model) {
    const World& world = *model.world;
    const Case& c = world.c();
    const at::Tensor q = own_heads(world.q_rows, c.heads, ranks);
    const at::Tensor kv = own_heads(world.kv_rows, c.kv_heads, ranks);
    for (Pass* const pass : {&model.forward, &model.backward}) {
      pass->q = world.q.mul(q);
      pass->k = world.k.mul(kv);
      pass->v = world.v.mul(kv);
      if (world.dout.defined()) pass->dout = world.dout.mul(q);
      pass->q_poisoned = at::zeros_like(world.q_rows.poisoned);
      pass->kv_poisoned = at::zeros_like(world.kv_rows.poisoned);
    }
    if (!returned) return;
    model.returned = [q](const World&, verify::Results& results) {
      results.out = results.out.mul(q);
      results.lse = at::where(q.ne(0.0), results.lse, 0.0);
    };
    model.returned_gradients = [q, kv](const World&, verify::Results& results) {
      results.dq = results.dq.mul(q);
      results.dk = results.dk.mul(kv);
      results.dv = results.dv.mul(kv);
    };
  }
};

}  // namespace

Hypotheses ring_hypotheses(const World& world, const Symptoms& symptoms) {
  return RingSteps(world, symptoms).all();
}

}  // namespace cp_pool::diagnosis
