// Mistakes with replicated tokens, whose rows every rank has a copy of.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cp_core/diagnosis/hypothesis.h"

namespace cp_pool::diagnosis {
namespace {

// bool [rows]: whether the token of the row is replicated.
at::Tensor replicated_rows(const Side& side) {
  return at::zeros_like(side.copy).index_fill(0, side.original.masked_select(side.copy), true).logical_or(side.copy);
}

class ReplicatedTokens : public Subject {
 public:
  ReplicatedTokens(const DenseProblem& dense, const Symptoms& symptoms) : Subject(dense, symptoms) {
    const bool keys = keys_.any().item<bool>();
    if (!keys && !queries_.any().item<bool>()) return;
    if (keys) several_or_none();
    if (c_.training) shares_of_queries();
    own_rows();
  }

 private:
  void several_or_none() {
    for (const int count : std::set<int>{2, dense_.ranks}) {
      counted_several_times(count);
      one_after_the_other(count);
    }
    missing();
  }

  // Queries see the keys of several ranks. Their gradient is that of all of them, or that of one.
  void counted_several_times(int count) {
    const char* const id = "replicated_keys_repeated";
    const std::string says = fmt::format("each replicated key counts {} times", count);
    const at::Tensor times = at::where(keys_, static_cast<double>(count), 1.0).unsqueeze(0);
    pass(id, says, [times](const DenseProblem&, Pass& pass) { pass.times = pass.times.mul(times); });
    model(id, says + ", and its gradient is that of one of them", [times](SimulatedStep& model) {
      for (Pass* const pass : {&model.forward, &model.backward}) pass->times = pass->times.mul(times);
      model.weight_dk = model.weight_dv = times.reciprocal();
    });
  }

  // The replicated keys of several ranks begin each sequence, and its other keys follow, as far as they have a place.
  void one_after_the_other(int count) {
    const Side& side = dense_.kv_rows;
    const at::Tensor length = index_tensor(dense_.lengths().valid_kv).index_select(0, side.sequence);
    const at::Tensor first = length.clamp(1, dense_.lengths().replicated_kv);
    const at::Tensor from = at::where(side.position.lt(first.mul(count)), side.position.remainder(first),
                                      side.position.sub(first.mul(count - 1)));
    const at::Tensor valid = side.valid.nonzero().flatten();
    const at::Tensor row_of = at::zeros({side.count()}, at::kLong)
                                  .scatter_reduce(0, side.canonical.index_select(0, valid), valid, "amin", false);
    const at::Tensor moved = row_of.index_select(0, side.canonical.add(from).sub(side.position).clamp_min(0));
    const at::Tensor rows = at::where(side.valid, moved, side.row).unsqueeze(0).expand({dense_.ranks, -1}).contiguous();
    for (const bool lands_there : {false, true}) {
      model("replicated_keys_repeated",
            fmt::format("the replicated K and V of {} ranks stand one after the other, and move the other K and V of "
                        "a sequence back{}",
                        count, lands_there ? ", but not their gradients" : ""),
            [rows, lands_there](SimulatedStep& model) {
              model.forward.held = model.backward.held = rows;
              if (lands_there) model.landing = rows;
            });
    }
  }

  void missing() {
    const char* const id = "replicated_keys_missing";
    const at::Tensor seen = keys_.logical_not().to(at::kDouble).unsqueeze(0);
    const at::Tensor owner = owner_of_whole_sequences();
    for (int rank = -1; rank < dense_.ranks; ++rank) {
      pass(id,
           rank < 0 ? "replicated keys are not seen" : fmt::format("only rank {}'s queries see replicated keys", rank),
           [rank, seen](const DenseProblem& dense, Pass& pass) {
             pass.times = at::where(dense.q_rows.rank.eq(rank).unsqueeze(1), pass.times, pass.times.mul(seen));
           });
      // Ranks that cut whole sequences into two chunks each drop their replicated rows, all of them or all but one.
      const at::Tensor held = dense_.kv_rows.row.masked_fill(keys_.logical_and(owner.ne(rank)), -1);
      pass(
          id,
          fmt::format("the K and V of replicated tokens are zeros{}",
                      rank < 0 ? "" : fmt::format(", except for those that rank {} computes", rank)),
          [held = held.unsqueeze(0).expand({dense_.ranks, -1})](const DenseProblem&, Pass& pass) { pass.held = held; });
    }
  }

  // int64 [kv rows]: the rank that has the row if whole sequences are cut into dual chunks.
  [[nodiscard]] at::Tensor owner_of_whole_sequences() const {
    const Side& side = dense_.kv_rows;
    const std::int64_t count = std::int64_t{2} * dense_.ranks;
    const at::Tensor length = index_tensor(dense_.lengths().valid_kv).index_select(0, side.sequence);
    const at::Tensor chunk = side.position.div(length.add(count - 1).div(count, "floor").clamp_min(1), "floor");
    return at::minimum(chunk, chunk.neg().add(count - 1));
  }

  // dk and dv of all keys count the replicated queries of every rank, or those of a replicated key only the queries of
  // the rank that returns them, of which the first rank or one rank after the other counts each replicated query.
  void shares_of_queries() {
    const bool k = symptoms_.fails("dk");
    const bool v = symptoms_.fails("dv");
    const bool q = symptoms_.fails("dq");
    const at::Tensor times = at::where(queries_, static_cast<double>(dense_.ranks), 1.0).unsqueeze(1);
    for (const bool of_queries : q ? std::vector{false, true} : std::vector{false}) {
      sums("replicated_queries_repeated",
           fmt::format("dk and dv{} count the dout of replicated queries {} times", of_queries ? " and dq" : "",
                       dense_.ranks),
           [=](SimulatedStep& model) {
             model.weight_dk = model.weight_dv = times;
             if (of_queries) model.weight_dq = times;
           });
    }
    const at::Tensor turn =
        queries_.to(at::kLong).mul(dense_.q_rows.copy.logical_not()).cumsum(0).sub(1).remainder(dense_.ranks);
    for (const at::Tensor& counts : {dense_.q_rows.rank, at::where(queries_, turn, dense_.q_rows.rank)}) {
      sums("replicated_share_missing",
           "the gradients of replicated tokens lack the contribution of other ranks' queries",
           [=, keys = keys_](SimulatedStep& model) {
             model.sums = [=](const SimulatedStep& of, const Backward& backward, bool absolute, WholeResults& results) {
               sum_gradients(of, backward, absolute, results);
               const DenseProblem& dense = *of.dense;
               SimulatedStep some = of;
               for (int rank = 0; rank < dense.ranks; ++rank) {
                 some.weight_dk = some.weight_dv = counts.eq(rank).to(at::kDouble).unsqueeze(1);
                 WholeResults own = results;
                 sum_gradients(some, backward, absolute, own);
                 const at::Tensor rows = keys.logical_and(dense.kv_rows.rank.eq(rank)).view({-1, 1, 1});
                 if (k) results.dk = at::where(rows, own.dk, results.dk);
                 if (v) results.dv = at::where(rows, own.dv, results.dv);
               }
             };
           });
    }
  }

  // A rank returns the replicated rows that it computed, and zeros in place of others.
  void own_rows() {
    const std::vector<std::string> names = symptoms_.failing_of({"out", "dq", "dk", "dv"});
    if (names.empty()) return;
    each("replicated_share_missing",
         fmt::format("a rank returns {} of only those replicated tokens that it computed, and 0 for others",
                     fmt::join(names, ", ")),
         names, zero_as_returned);
  }

  // Returns the rows with 0 in the replicated rows that the ranks returned as 0, unless every rank did so.
  static at::Tensor zero_as_returned(const DenseProblem& dense, Member member, const at::Tensor& predicted) {
    const Side& side = *dense.side_of(member);
    const at::Tensor returned = joined_rows(dense.observation->results, member);
    if (!returned.defined() || !returned.sizes().equals(predicted.sizes())) return predicted;
    const auto is_zero = [](const at::Tensor& rows) { return rows.eq(0.0).flatten(1).all(1); };
    const at::Tensor gone =
        replicated_rows(side).logical_and(is_zero(returned)).logical_and(is_zero(predicted).logical_not());
    const at::Tensor there =
        at::zeros({side.count()}, at::kLong).index_add(0, side.original, gone.logical_not().to(at::kLong));
    if (gone.logical_and(there.index_select(0, side.original).eq(0)).any().item<bool>()) return predicted;
    return predicted.masked_fill(gone.view({-1, 1, 1}), 0.0);
  }

  const at::Tensor queries_ = replicated_rows(dense_.q_rows);
  const at::Tensor keys_ = replicated_rows(dense_.kv_rows);
};

}  // namespace

Hypotheses replicated_hypotheses(const DenseProblem& dense, const Symptoms& symptoms) {
  return ReplicatedTokens(dense, symptoms).all();
}

}  // namespace cp_pool::diagnosis
