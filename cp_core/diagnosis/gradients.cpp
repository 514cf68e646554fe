// Mistakes in gradients only: which pairs they count, how often, and where they land.
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cp_core/diagnosis/rank_parts.h"
#include "cp_core/diagnosis/row_choice.h"
#include "cp_core/diagnosis/subject.h"

namespace cp_pool::diagnosis {
namespace {

// A set of pairs, with its name in sentences about dq and in sentences about dk and dv.
struct Share {
  std::string of_keys;     // for dq: "of other ranks' keys"
  std::string of_queries;  // for dk and dv: "of other ranks' queries"
  at::Tensor pairs;        // bool
};

class GradientMistakes : Subject {
 public:
  GradientMistakes(const World& world, const Symptoms& symptoms) : Subject(world, symptoms) {
    for (const char* const name : {"dq", "dk", "dv"}) {
      if (symptoms.fails(name)) wrong_.emplace_back(name);
    }
  }

  Hypotheses all() {
    if (!c_.training) return {};
    scale();
    times_ranks();
    for (const Share& share : shares()) missing(share);
    overwritten();
    of_another_rank();
    if (c_.head_dim_qk == c_.head_dim_v) exchanged();
    return std::move(all_);
  }

 private:
  [[nodiscard]] bool wrong(const char* name) const { return std::ranges::find(wrong_, name) != wrong_.end(); }

  [[nodiscard]] std::string names() const {
    if (wrong_.size() == 3) return "dq, dk and dv";
    return fmt::format("{}", fmt::join(wrong_, " and "));
  }
  [[nodiscard]] const char* verb(const char* one, const char* many) const { return wrong_.size() == 1 ? one : many; }

  void scale() {
    if (wrong_.empty() || wrong("dv")) return;
    const double over = 1 / world_.problem.scale();
    const bool q = wrong("dq");
    const bool k = wrong("dk");
    sums("gradient_scale_missing", fmt::format("{} {} the scale", names(), verb("lacks", "lack")), [=](Model& model) {
      const at::Tensor weight = at::ones({1, 1}, at::kDouble).mul(over);
      if (q) model.weight_dq = weight;
      if (k) model.weight_dk = weight;
    });
  }

  // All failing gradients are multiplied or divided by the number of ranks.
  void times_ranks() {
    if (world_.ranks == 1) return;
    std::vector<std::string> failing = wrong_;
    for (const char* const name : {"dbias", "dsink"}) {
      if (symptoms_.fails(name)) failing.emplace_back(name);
    }
    if (failing.empty()) return;
    const auto ranks = static_cast<double>(world_.ranks);
    for (const bool over : {false, true}) {
      const double factor = over ? 1 / ranks : ranks;
      results(over ? "gradient_over_ranks" : "gradient_times_ranks",
              fmt::format("{} {} {} the number of ranks, {}", fmt::join(failing, ", "),
                          failing.size() == 1 ? "is" : "are", over ? "divided by" : "multiplied by", world_.ranks),
              [failing, factor](const World&, WholeResults& results) {
                for (const auto& [name, member] : verify::kResults) {
                  // The mask probe has no bias and no sink.
                  const bool fails = std::ranges::find(failing, name) != failing.end();
                  if (fails && (results.*member).defined()) results.*member = (results.*member).mul(factor);
                }
              });
    }
  }

  [[nodiscard]] std::vector<Share> shares() const {
    std::vector<Share> all;
    if (world_.ranks == 1) return all;
    const at::Tensor q_rank = world_.q_rows.rank.unsqueeze(1);
    const at::Tensor kv_rank = world_.kv_rows.rank.unsqueeze(0);
    for (const Ring& ring : rings_of(world_)) {
      const at::Tensor steps = step_of_pairs(world_, ring);
      all.push_back({.of_keys = "of other ranks' keys", .of_queries = "of other ranks' queries", .pairs = steps.ne(0)});
      all.push_back({.of_keys = "of a rank's own keys", .of_queries = "of a rank's own queries", .pairs = steps.eq(0)});
      for (int step = 1; step < ring.size && ring.size > 2; ++step) {
        all.push_back({.of_keys = fmt::format("of step {} of the ring", step),
                       .of_queries = fmt::format("of step {} of the ring", step),
                       .pairs = steps.eq(step)});
        all.push_back(
            {.of_keys = fmt::format("of all steps of the ring except that of a rank's own keys and step {}", step),
             .of_queries =
                 fmt::format("of all steps of the ring except that of a rank's own queries and step {}", step),
             .pairs = steps.ne(0).logical_and(steps.ne(step))});
        all.push_back({.of_keys = fmt::format("of all steps of the ring except step {}", step),
                       .of_queries = fmt::format("of all steps of the ring except step {}", step),
                       .pairs = steps.ne(step)});
      }
    }
    for (int rank = 0; rank < world_.ranks; ++rank) {
      all.push_back({.of_keys = fmt::format("of rank {}'s keys", rank),
                     .of_queries = fmt::format("of rank {}'s queries", rank),
                     .pairs = {}});
      all.back().pairs = wrong("dq") && wrong_.size() == 1 ? kv_rank.eq(rank).expand({q_rank.size(0), -1})
                                                           : q_rank.eq(rank).expand({-1, kv_rank.size(1)});
    }
    const at::Tensor others = q_rank.ne(kv_rank);
    for (const std::int64_t half : {0, 1}) {
      const char* const which = half == 0 ? "first" : "second";
      const at::Tensor queries = world_.q_rows.half.eq(half).unsqueeze(1);
      const at::Tensor keys = world_.kv_rows.half.eq(half).unsqueeze(0);
      all.push_back({.of_keys = fmt::format("of each other rank's {} chunk of keys", which),
                     .of_queries = fmt::format("of each other rank's {} chunk of queries", which),
                     .pairs = others.logical_and(wrong("dq") && wrong_.size() == 1 ? keys : queries)});
      all.push_back({.of_keys = fmt::format("of other ranks' keys to the {} chunk of queries", which),
                     .of_queries = fmt::format("of other ranks' queries to the {} chunk of keys", which),
                     .pairs = others.logical_and(wrong("dq") && wrong_.size() == 1 ? queries : keys)});
    }
    return all;
  }

  // Those of dq, dk and dv that fail lack a share.
  void missing(const Share& share) {
    if (wrong_.empty()) return;
    const bool dq_alone = wrong_.size() == 1 && wrong("dq");
    lack(fmt::format("{} {} the contribution {}", names(), verb("lacks", "lack"),
                     dq_alone ? share.of_keys : share.of_queries),
         share.pairs);
  }

  void lack(std::string says, const at::Tensor& pairs) {
    const at::Tensor weight = pairs.logical_not().to(at::kDouble);
    const bool q = wrong("dq");
    const bool k = wrong("dk");
    const bool v = wrong("dv");
    sums("gradient_share_missing", std::move(says), [=](Model& model) {
      if (q) model.weight_dq = weight;
      if (k) model.weight_dk = weight;
      if (v) model.weight_dv = weight;
    });
  }

  // dq of each query counts only the pairs of one of the choices, the one that fits its dq best.
  void lack_some(std::string says, const std::vector<at::Tensor>& choices) {
    sums("gradient_share_missing", std::move(says), [choices](Model& model) {
      std::vector<Model> models;
      for (const at::Tensor& counts : choices) models.emplace_back(model).weight_dq = counts.to(at::kDouble);
      model.weight_dq = chosen(nearest_model_in_dq(models).unsqueeze(1), models, &Model::weight_dq);
    });
  }

  // dk and dv of each key lack the pairs of one of the choices, the one that fits its dk best.
  void lack_one_or_other(std::string says, const std::vector<at::Tensor>& choices) {
    if (wrong("dq") || !wrong("dk")) return;
    const bool v = wrong("dv");
    sums("gradient_share_missing", std::move(says), [choices, v](Model& model) {
      std::vector<Model> models;
      for (const at::Tensor& gone : choices) {
        models.emplace_back(model).weight_dk = gone.logical_not().to(at::kDouble);
      }
      model.weight_dk = chosen(nearest_model_in_dk(models).unsqueeze(0), models, &Model::weight_dk);
      if (v) model.weight_dv = model.weight_dk;
    });
  }

  // Only the last or the first part of each row counts, as if parts overwrote each other.
  void overwritten() {
    if (wrong_.empty()) return;
    const bool dq_alone = wrong_.size() == 1 && wrong("dq");
    if (dq_alone) {
      std::vector<Parts> all = parts_of(world_);
      for (Parts& parts : parts_with_own_last(world_)) all.push_back(std::move(parts));
      const at::Tensor chunk =
          world_.kv_rows.rank.mul(2).add(world_.kv_rows.half).unsqueeze(0).expand({world_.q_rows.count(), -1});
      all.push_back({.what = "one part per chunk of keys, in order", .of_pair = chunk, .count = 2 * world_.ranks});
      for (const Parts& parts : all) {
        for (const bool last : {true, false}) {
          const at::Tensor counts = end_part(parts.of_pair, Model(world_).forward.times, last, /*dim=*/1);
          lack(fmt::format("dq counts only the {} part of each row ({})", last ? "last" : "first", parts.what),
               counts.logical_not());
          if (parts.finer.empty()) continue;
          std::vector<at::Tensor> choices{counts};
          for (const at::Tensor& finer : parts.finer) {
            choices.push_back(end_part(finer, Model(world_).forward.times, last, /*dim=*/1));
          }
          lack_some(fmt::format("dq counts only the {} part of each row ({}, or one per chunk of its keys)",
                                last ? "last" : "first", parts.what),
                    choices);
        }
      }
      // The rank's own keys count too.
      const at::Tensor own = world_.q_rows.rank.unsqueeze(1).eq(world_.kv_rows.rank.unsqueeze(0));
      const at::Tensor others = Model(world_).forward.times.masked_fill(own, 0.0);
      for (const bool last : {true, false}) {
        const at::Tensor counts = end_part(stretch_of_others(world_), others, last, /*dim=*/1);
        lack(fmt::format("of the stretches of other ranks' keys that a rank's own keys separate, dq counts only the {}",
                         last ? "last" : "first"),
             counts.logical_or(own).logical_not());
      }
      return;
    }
    // In the keys that it sees, a later chunk of queries overwrites the contribution of earlier chunks.
    const at::Tensor times = Model(world_).forward.times;
    const at::Tensor stretch = stretch_of_rows(world_.q_rows);
    std::vector<std::pair<at::Tensor, bool>> cuts{{world_.q_rows.half, true},
                                                  {world_.q_rows.rank.mul(2).add(world_.q_rows.half), false}};
    if (!stretch.equal(world_.q_rows.half)) cuts.emplace_back(stretch, true);
    for (const auto& [chunk, of_rank] : cuts) {
      std::vector<at::Tensor> all_gone;
      for (const bool last : {true, false}) {
        at::Tensor gone = at::zeros({world_.q_rows.count(), world_.kv_rows.count()}, at::kBool);
        for (int rank = 0; rank < world_.ranks; ++rank) {
          if (!of_rank && rank > 0) break;
          const at::Tensor queries =
              of_rank ? world_.q_rows.rank.eq(rank).unsqueeze(1) : world_.q_rows.valid.unsqueeze(1);
          const at::Tensor kept = end_part(chunk.unsqueeze(1).expand_as(times), times.mul(queries), last, /*dim=*/0);
          gone = gone.logical_or(queries.logical_and(kept.logical_not()));
        }
        lack(fmt::format("for each key, {} {} only the {} of {} chunks of queries that see the key", names(),
                         verb("counts", "count"), last ? "last" : "first", of_rank ? "each rank's" : "all ranks'"),
             gone);
        all_gone.push_back(gone);
      }
      lack_one_or_other(
          fmt::format("for each key, {} {} only the last or the first of {} chunks of queries that see the key",
                      names(), verb("counts", "count"), of_rank ? "each rank's" : "all ranks'"),
          all_gone);
    }
    one_chunk_to_others();
  }

  // A rank's queries contribute to the keys of other ranks chunk by chunk, and only one of the chunks arrives.
  void one_chunk_to_others() {
    if (world_.ranks == 1 || wrong("dq")) return;
    const at::Tensor own = world_.q_rows.rank.unsqueeze(1).eq(world_.kv_rows.rank.unsqueeze(0));
    const at::Tensor gives = Model(world_).forward.times.masked_fill(own, 0.0).ne(0.0).any(1);
    for (const bool last : {true, false}) {
      at::Tensor gone = at::zeros_like(gives);
      for (int rank = 0; rank < world_.ranks; ++rank) {
        const at::Tensor queries = world_.q_rows.rank.eq(rank);
        const at::Tensor chunks = world_.q_rows.half.masked_select(queries.logical_and(gives));
        if (chunks.numel() == 0) continue;
        gone.logical_or_(queries.logical_and(world_.q_rows.half.ne(last ? chunks.max() : chunks.min())));
      }
      lack(fmt::format(
               "for the keys of other ranks, {} {} only the {} of each rank's chunks of queries that see such a key",
               names(), verb("counts", "count"), last ? "last" : "first"),
           gone.unsqueeze(1).logical_and(own.logical_not()));
    }
  }

  // bool, pairs: whether the pair is in the last or first part, of its row (dim 1) or column (dim 0), that has a
  // visible pair.
  static at::Tensor end_part(const at::Tensor& part, const at::Tensor& times, bool last, std::int64_t dim) {
    const at::Tensor of_seen = part.masked_fill(times.eq(0.0), last ? -1 : part.max().item<std::int64_t>() + 1);
    return part.eq(last ? of_seen.amax(dim, /*keepdim=*/true) : of_seen.amin(dim, /*keepdim=*/true));
  }

  void of_another_rank() {
    if (world_.ranks == 1 || wrong_.empty()) return;
    const char* const id = "gradient_of_another_rank";
    const auto rolled = [this](const Side& side, int by) {
      return rows_at_same_place(side, world_.ranks, [=, ranks = world_.ranks](int, int owner) {
        return ((owner + by) % ranks + ranks) % ranks;
      });
    };
    for (const int by : {1, -1}) {
      const at::Tensor q = rolled(world_.q_rows, by);
      const at::Tensor kv = rolled(world_.kv_rows, by);
      if (!q.defined() || !kv.defined()) continue;
      results(id, fmt::format("a rank returns the {} of the {} rank", names(), by > 0 ? "next" : "previous"),
              [q = q[0], kv = kv[0], wrong = wrong_](const World&, WholeResults& results) {
                for (const std::string& name : wrong) {
                  if (name == "dq") results.dq = results.dq.index_select(0, q);
                  if (name == "dk") results.dk = results.dk.index_select(0, kv);
                  if (name == "dv") results.dv = results.dv.index_select(0, kv);
                }
              });
    }
    for (const Ring& ring : rings_of(world_)) {
      if (ring.size > 1) sum_of_sent(ring);
    }
  }

  // The gradients that a rank computed for the keys of all other ranks are added up at one of these ranks.
  void sum_of_sent(const Ring& ring) {
    const auto at = [ring](int rank) { return ring.place[static_cast<std::size_t>(rank)]; };
    for (const int by : {1, -1}) {
      const int of_place = world_.ranks / ring.size;
      const auto home = [=](int rank, int owner) {
        if (at(rank) == at(owner)) return owner;
        const int place = ((at(rank) + by) % ring.size + ring.size) % ring.size;
        return place * of_place + owner % of_place;
      };
      const at::Tensor landing = rows_at_same_place(world_.kv_rows, world_.ranks, home);
      if (!landing.defined()) return;
      sums("gradient_of_another_rank",
           fmt::format("a rank sums its contributions to the keys of all other ranks and sends the sum to the {} rank",
                       by > 0 ? "next" : "previous"),
           [landing](Model& model) { model.landing = landing; });
    }
    // The gradients stay at the rank that computed them, in the rows of its own keys.
    const auto own = [=, this](int rank, int owner) {
      return at(rank) * (world_.ranks / ring.size) + owner % (world_.ranks / ring.size);
    };
    const at::Tensor landing = rows_at_same_place(world_.kv_rows, world_.ranks, own);
    if (!landing.defined()) return;
    sums("gradient_of_another_rank", "a rank adds its contributions to other ranks' keys to the rows of its own keys",
         [landing](Model& model) { model.landing = landing; });
  }

  void exchanged() {
    const char* const id = "dk_dv_exchanged";
    const auto change = [this, id](std::string says, std::function<void(WholeResults&)> by) {
      results(id, std::move(says), [by = std::move(by)](const World&, WholeResults& results) { by(results); });
    };
    change("dk and dv are swapped", [](WholeResults& results) { std::swap(results.dk, results.dv); });
    change("dv is returned both as dk and as dv", [](WholeResults& results) { results.dk = results.dv; });
    change("dk is returned both as dk and as dv", [](WholeResults& results) { results.dv = results.dk; });
    change("dk + dv is returned both as dk and as dv",
           [](WholeResults& results) { results.dk = results.dv = results.dk.add(results.dv); });
    for (const int by : {1, -1}) {
      if (world_.ranks == 1) break;
      const at::Tensor others = rows_at_same_place(
          world_.kv_rows, world_.ranks,
          [=, ranks = world_.ranks](int, int owner) { return ((owner + by) % ranks + ranks) % ranks; });
      if (!others.defined()) break;
      change(fmt::format("dk + dv is returned as dk, and that of the {} rank as dv", by > 0 ? "next" : "previous"),
             [rows = others[0]](WholeResults& results) {
               results.dk = results.dk.add(results.dv);
               results.dv = results.dk.index_select(0, rows);
             });
    }
  }

  std::vector<std::string> wrong_;  // those of dq, dk and dv that fail
};

}  // namespace

Hypotheses gradient_hypotheses(const World& world, const Symptoms& symptoms) {
  return GradientMistakes(world, symptoms).all();
}

}  // namespace cp_pool::diagnosis
