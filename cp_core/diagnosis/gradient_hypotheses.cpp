// Mistakes in gradients only: which pairs they count, how often, and where they land.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/rank_parts.h"

namespace cp_pool::diagnosis {
namespace {

class GradientMistakes : public Subject {
 public:
  GradientMistakes(const DenseProblem& dense, const Symptoms& symptoms) : Subject(dense, symptoms) {
    if (!c_.training) return;
    if (!wrong_.empty()) {
      if (dense_.ranks > 1) shares();
      if (dq_alone()) end_of_row();
      if (wrong("dk") && !wrong("dq")) end_of_column();
      if (dense_.ranks > 1 && !wrong("dq")) first_chunk_to_others();
      if (dense_.ranks > 1) of_another_rank();
    }
    if (c_.head_dim_qk == c_.head_dim_v) exchanged();
  }

 private:
  [[nodiscard]] bool wrong(const char* name) const { return symptoms_.fails(name); }
  [[nodiscard]] bool dq_alone() const { return wrong_.size() == 1 && wrong("dq"); }
  // "dk and dv lack": the wrong gradients, with the verb for one or for many.
  [[nodiscard]] std::string these(const char* one, const char* many) const {
    const std::string names = wrong_.size() == 3 ? "dq, dk and dv" : fmt::format("{}", fmt::join(wrong_, " and "));
    return fmt::format("{} {}", names, wrong_.size() == 1 ? one : many);
  }

  // The wrong gradients lack the contribution of these pairs (bool): of keys, in dq, or of queries.
  void lack(std::string says, const at::Tensor& pairs) {
    const at::Tensor weight = pairs.logical_not().to(at::kDouble);
    sums("gradient_share_missing", std::move(says),
         [weight, q = wrong("dq"), k = wrong("dk"), v = wrong("dv")](SimulatedStep& model) {
           if (q) model.weight_dq = weight;
           if (k) model.weight_dk = weight;
           if (v) model.weight_dv = weight;
         });
  }

  void shares() {
    const auto lacks = [this](const std::string& of, const at::Tensor& pairs) {
      lack(fmt::format("{} the contribution of {}", these("lacks", "lack"), of), pairs);
    };
    const at::Tensor q_rank = dense_.q_rows.rank.unsqueeze(1);
    const at::Tensor kv_rank = dense_.kv_rows.rank.unsqueeze(0);
    const char* const rows = dq_alone() ? "keys" : "queries";
    for (const Ring& ring : rings_of(dense_)) {
      const at::Tensor steps = step_of_pairs(dense_, ring);
      lacks(fmt::format("other ranks' {}", rows), steps.ne(0));
      lacks(fmt::format("a rank's own {}", rows), steps.eq(0));
      for (int step = 1; step < ring.size && ring.size > 2; ++step) {
        lacks(fmt::format("step {} of the ring", step), steps.eq(step));
        lacks(fmt::format("all steps of the ring except that of a rank's own {} and step {}", rows, step),
              steps.ne(0).logical_and(steps.ne(step)));
        lacks(fmt::format("all steps of the ring except step {}", step), steps.ne(step));
      }
    }
    for (int rank = 0; rank < dense_.ranks; ++rank) {
      lacks(fmt::format("rank {}'s {}", rank, rows), (dq_alone() ? kv_rank : q_rank).eq(rank));
    }
  }

  // bool, pairs: whether the pair is in the last or first part, of its row (dim 1) or column (dim 0), that has a
  // visible pair.
  static at::Tensor end_part(const at::Tensor& part, const at::Tensor& times, bool last, std::int64_t dim) {
    const at::Tensor of_seen = part.masked_fill(times.eq(0.0), last ? -1 : part.max().item<std::int64_t>() + 1);
    return part.eq(last ? of_seen.amax(dim, /*keepdim=*/true) : of_seen.amin(dim, /*keepdim=*/true));
  }

  // dq counts only the last part of each row, as if parts overwrote each other.
  void end_of_row() {
    const at::Tensor times = SimulatedStep(dense_).forward.times;
    for (const Parts& parts : parts_of(dense_, /*with_own_last=*/true)) {
      std::vector<at::Tensor> choices{end_part(parts.of_pair, times, /*last=*/true, /*dim=*/1)};
      lack(fmt::format("dq counts only the last part of each row ({})", parts.what), choices.front().logical_not());
      if (parts.finer.empty()) continue;
      for (const at::Tensor& finer : parts.finer) choices.push_back(end_part(finer, times, /*last=*/true, /*dim=*/1));
      best_of(fmt::format("dq counts only the last part of each row ({}, or one per chunk of its keys)", parts.what),
              &WholeResults::dq, &SimulatedStep::weight_dq, choices);
    }
  }

  // Each row of the gradient `by` (and of dv, if it is wrong) counts the pairs of one of the choices (bool), the one
  // that fits it best.
  void best_of(std::string says, Member by, at::Tensor SimulatedStep::* weight,
               const std::vector<at::Tensor>& choices) {
    sums("gradient_share_missing", std::move(says), [=, v = wrong("dv")](SimulatedStep& model) {
      std::vector<SimulatedStep> models;
      for (const at::Tensor& counts : choices) models.emplace_back(model).*weight = counts.to(at::kDouble);
      const at::Tensor number = nearest_model(models, by).unsqueeze(is_of_keys(by) ? 0 : 1);
      model.*weight = chosen(number, models, weight);
      if (v) model.weight_dv = model.*weight;
    });
  }

  // In the keys that it sees, a later chunk of queries overwrites the contribution of earlier chunks, or the other way
  // round.
  void end_of_column() {
    const at::Tensor times = SimulatedStep(dense_).forward.times;
    const at::Tensor& half = dense_.q_rows.half;
    const at::Tensor stretch = stretch_of_rows(dense_.q_rows);
    std::vector<at::Tensor> cuts{half};
    if (!stretch.equal(half)) cuts.push_back(stretch);
    for (const at::Tensor& chunk : cuts) {
      std::vector<at::Tensor> choices;
      for (const bool last : {true, false}) {
        at::Tensor& counts = choices.emplace_back(at::zeros(times.sizes(), at::kBool));
        for (int rank = 0; rank < dense_.ranks; ++rank) {
          const at::Tensor queries = dense_.q_rows.rank.eq(rank).unsqueeze(1);
          const at::Tensor kept = end_part(chunk.unsqueeze(1).expand_as(times), times.mul(queries), last, /*dim=*/0);
          counts = counts.logical_or(queries.logical_and(kept));
        }
      }
      best_of(
          fmt::format("for each key, {} only the last or the first of each rank's chunks of queries that see the key",
                      these("counts", "count")),
          &WholeResults::dk, &SimulatedStep::weight_dk, choices);
    }
  }

  // Of a rank's chunks of queries, only the first that sees keys of other ranks contributes to these.
  void first_chunk_to_others() {
    const at::Tensor own = dense_.q_rows.rank.unsqueeze(1).eq(dense_.kv_rows.rank.unsqueeze(0));
    const at::Tensor gives = SimulatedStep(dense_).forward.times.masked_fill(own, 0.0).ne(0.0).any(1);
    at::Tensor gone = at::zeros_like(gives);
    for (int rank = 0; rank < dense_.ranks; ++rank) {
      const at::Tensor queries = dense_.q_rows.rank.eq(rank);
      const at::Tensor chunks = dense_.q_rows.half.masked_select(queries.logical_and(gives));
      if (chunks.numel() > 0) gone.logical_or_(queries.logical_and(dense_.q_rows.half.ne(chunks.min())));
    }
    lack(fmt::format(
             "for the keys of other ranks, {} only the first of each rank's chunks of queries that see such a key",
             these("counts", "count")),
         gone.unsqueeze(1).logical_and(own.logical_not()));
  }

  // int64 [kv rows]: for each row, the row at the same index of the next rank (by = 1) or the previous one. Undefined
  // unless all ranks have equally many rows of every sequence.
  [[nodiscard]] at::Tensor rolled_keys(int by) const {
    const auto other = [by, ranks = dense_.ranks](int, int owner) { return modulo(owner + by, ranks); };
    const at::Tensor rows = rows_at_same_place(dense_.kv_rows, dense_.ranks, other);
    return rows.defined() ? rows[0] : rows;
  }

  void of_another_rank() {
    const char* const id = "gradient_of_another_rank";
    for (const int by : {1, -1}) {
      const at::Tensor rows = rolled_keys(by);
      if (wrong("dq") || !rows.defined()) break;
      each(id, fmt::format("{} of the {} rank", these("is that", "are those"), by > 0 ? "next" : "previous"), wrong_,
           [rows](const DenseProblem&, Member, const at::Tensor& gradient) { return gradient.index_select(0, rows); });
    }
    const auto lands = [&](std::string says, const auto& home) {
      sums(id, std::move(says),
           [landing = rows_at_same_place(dense_.kv_rows, dense_.ranks, home)](SimulatedStep& model) {
             model.landing = landing;
           });
    };
    lands("a rank adds its contributions to the keys of other ranks to those of its own keys",
          [](int rank, int) { return rank; });
    for (const Ring& ring : rings_of(dense_)) {
      for (const int by : {1, -1}) {
        lands(
            fmt::format("a rank sums its contributions to the keys of all other ranks and sends the sum to the {} rank",
                        by > 0 ? "next" : "previous"),
            [ring, by](int rank, int owner) {
              return ring.step(rank, owner) == 0 ? owner : ring.rank_at(owner, ring.at(rank) + by);
            });
      }
    }
  }

  void exchanged() {
    const auto change = [this](std::string says, std::function<void(WholeResults&)> by) {
      results("dk_dv_exchanged", std::move(says),
              [by = std::move(by)](const DenseProblem&, WholeResults& results) { by(results); });
    };
    change("dk and dv are swapped", [](WholeResults& results) { std::swap(results.dk, results.dv); });
    change("dv is returned both as dk and as dv", [](WholeResults& results) { results.dk = results.dv; });
    change("dk is returned both as dk and as dv", [](WholeResults& results) { results.dv = results.dk; });
    change("dk + dv is returned both as dk and as dv",
           [](WholeResults& results) { results.dk = results.dv = results.dk.add(results.dv); });
    for (const int by : {1, -1}) {
      const at::Tensor rows = dense_.ranks == 1 ? at::Tensor() : rolled_keys(by);
      if (!rows.defined()) return;
      change(fmt::format("dk + dv is returned as dk, and that of the {} rank as dv", by > 0 ? "next" : "previous"),
             [rows](WholeResults& results) {
               results.dk = results.dk.add(results.dv);
               results.dv = results.dk.index_select(0, rows);
             });
    }
  }

  const std::vector<std::string> wrong_ = symptoms_.failing_of({"dq", "dk", "dv"});
};

}  // namespace

Hypotheses gradient_hypotheses(const DenseProblem& dense, const Symptoms& symptoms) {
  return GradientMistakes(dense, symptoms).all();
}

}  // namespace cp_pool::diagnosis
