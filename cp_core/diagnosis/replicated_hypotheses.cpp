// Mistakes with replicated tokens, whose rows every rank has a copy of.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/lengths.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/rank_parts.h"
#include "cp_core/diagnosis/whole_results.h"

namespace cp_pool::diagnosis {
namespace {

// bool [rows]: whether the token of the row is replicated.
at::Tensor replicated_rows(const Side& side) {
  return at::zeros_like(side.copy).index_fill(0, side.original.masked_select(side.copy), true).logical_or(side.copy);
}

class ReplicatedTokens : Subject {
 public:
  using Subject::Subject;

  Hypotheses all() {
    if (!keys_.any().item<bool>()) return {};
    for (const int count : std::set<int>{2, world_.ranks}) {
      counted_several_times(count);
      one_after_the_other(count);
    }
    missing();
    if (c_.training) shares_of_queries();
    own_rows();
    return std::move(all_);
  }

 private:
  // Queries see the keys of several ranks. Their gradient is that of all of them, or that of one.
  void counted_several_times(int count) {
    const char* const id = "replicated_keys_repeated";
    const std::string says = fmt::format("each replicated key counts {} times", count);
    const at::Tensor times = at::where(keys_, static_cast<double>(count), 1.0).unsqueeze(0);
    pass(id, says, [times](const World&, Pass& pass) { pass.times = pass.times.mul(times); });
    model(id, says + ", and its gradient is that of one of them", [times](Model& model) {
      for (Pass* const pass : {&model.forward, &model.backward}) pass->times = pass->times.mul(times);
      model.weight_dk = model.weight_dv = times.reciprocal();
    });
  }

  // The replicated keys of several ranks begin each sequence, and its other keys follow, as far as they have a place.
  void one_after_the_other(int count) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> row_at;
    const Side& side = world_.kv_rows;
    const auto* const sequence = side.sequence.const_data_ptr<std::int64_t>();
    const auto* const position = side.position.const_data_ptr<std::int64_t>();
    for (std::int64_t row = side.count(); row-- > 0;) row_at[{sequence[row], position[row]}] = row;
    const SequenceLengths& lengths = world_.lengths();
    std::vector<std::int64_t> held;
    for (std::int64_t row = 0; row < side.count(); ++row) {
      const std::int64_t valid = lengths.valid_kv[static_cast<std::size_t>(sequence[row])];
      const std::int64_t first = replicated_tokens(lengths.replicated, valid);
      std::int64_t from = position[row];
      if (from >= 0 && from < valid) from = from < count * first ? from % first : from - (count - 1) * first;
      held.push_back(from == position[row] ? row : row_at.at({sequence[row], from}));
    }
    const at::Tensor rows = index_tensor(held).unsqueeze(0).expand({world_.ranks, -1}).contiguous();
    for (const bool lands_there : {false, true}) {
      model("replicated_keys_repeated",
            fmt::format("the replicated K and V of {} ranks stand one after the other, and move the other K and V of "
                        "a sequence back{}",
                        count, lands_there ? ", but not their gradients" : ""),
            [rows, lands_there](Model& model) {
              model.forward.held = model.backward.held = rows;
              if (lands_there) model.landing = rows;
            });
    }
  }

  void missing() {
    const char* const id = "replicated_keys_missing";
    const at::Tensor seen = keys_.logical_not().to(at::kDouble).unsqueeze(0);
    pass(id, "replicated keys are not seen", [seen](const World&, Pass& pass) { pass.times = pass.times.mul(seen); });
    for (int rank = 0; rank < world_.ranks; ++rank) {
      pass(id, fmt::format("only rank {}'s queries see replicated keys", rank),
           [rank, seen](const World& world, Pass& pass) {
             pass.times = at::where(world.q_rows.rank.eq(rank).unsqueeze(1), pass.times, pass.times.mul(seen));
           });
    }
    // Ranks that cut whole sequences into two chunks each drop their replicated rows, all of them or all but one.
    const at::Tensor owner = owner_of_whole_sequences(world_.kv_rows, world_.lengths().valid_kv);
    const at::Tensor rows = at::arange(world_.kv_rows.count(), at::kLong);
    std::vector<at::Tensor> known;
    for (int kept = -1; kept < world_.ranks; ++kept) {
      const at::Tensor held = rows.masked_fill(keys_.logical_and(owner.ne(kept)), -1);
      if (std::ranges::any_of(known, [&](const at::Tensor& before) { return before.equal(held); })) continue;
      known.push_back(held);
      pass(id,
           fmt::format("the K and V of replicated tokens are zeros{}",
                       kept < 0 ? "" : fmt::format(", except for those that rank {} computes", kept)),
           [held = held.unsqueeze(0).expand({world_.ranks, -1})](const World&, Pass& pass) { pass.held = held; });
    }
  }

  // int64 [rows]: the rank that has the row if whole sequences are cut into dual chunks.
  [[nodiscard]] at::Tensor owner_of_whole_sequences(const Side& side, const std::vector<std::int64_t>& valid) const {
    std::vector<std::int64_t> chunks;
    const std::int64_t count = std::int64_t{2} * world_.ranks;
    for (const std::int64_t length : valid) chunks.push_back(std::max<std::int64_t>(1, (length + count - 1) / count));
    const at::Tensor chunk = side.position.div(index_tensor(chunks).index_select(0, side.sequence), "floor");
    return at::minimum(chunk, chunk.neg().add(count - 1));
  }

  // dk and dv of all keys count the replicated queries of every rank, or those of a replicated key only the queries of
  // the rank that returns them, of which the first rank or one rank after the other counts each replicated query.
  void shares_of_queries() {
    const bool k = symptoms_.fails("dk");
    const bool v = symptoms_.fails("dv");
    const bool q = symptoms_.fails("dq");
    const at::Tensor times = at::where(queries_, static_cast<double>(world_.ranks), 1.0).unsqueeze(1);
    for (const bool of_queries : q ? std::vector{false, true} : std::vector{false}) {
      sums("replicated_queries_repeated",
           fmt::format("dk and dv{} count the dout of replicated queries {} times", of_queries ? " and dq" : "",
                       world_.ranks),
           [=](Model& model) {
             model.weight_dk = model.weight_dv = times;
             if (of_queries) model.weight_dq = times;
           });
    }
    const at::Tensor turn =
        queries_.to(at::kLong).mul(world_.q_rows.copy.logical_not()).cumsum(0).sub(1).remainder(world_.ranks);
    for (const at::Tensor& counts : {world_.q_rows.rank, at::where(queries_, turn, world_.q_rows.rank)}) {
      sums("replicated_share_missing",
           "the gradients of replicated tokens lack the contribution of other ranks' queries",
           [=, keys = keys_](Model& model) {
             model.sums = [=](const Model& of, const Backward& backward, bool absolute, WholeResults& results) {
               sum_gradients(of, backward, absolute, results);
               const World& world = *of.world;
               Model some = of;
               for (int rank = 0; rank < world.ranks; ++rank) {
                 some.weight_dk = some.weight_dv = counts.eq(rank).to(at::kDouble).unsqueeze(1);
                 WholeResults own = results;
                 sum_gradients(some, backward, absolute, own);
                 const at::Tensor rows = keys.logical_and(world.kv_rows.rank.eq(rank)).view({-1, 1, 1});
                 if (k) results.dk = at::where(rows, own.dk, results.dk);
                 if (v) results.dv = at::where(rows, own.dv, results.dv);
               }
             };
           });
    }
  }

  // A rank returns the replicated rows that it computed, and zeros in place of others.
  void own_rows() {
    std::vector<std::string> names;
    for (const char* const name : {"out", "dq", "dk", "dv"}) {
      if (symptoms_.fails(name)) names.emplace_back(name);
    }
    if (names.empty()) return;
    results("replicated_share_missing",
            fmt::format("a rank returns {} of only those replicated tokens that it computed, and 0 for others",
                        fmt::join(names, ", ")),
            [names](const World& world, WholeResults& results) {
              for (const auto& [name, member] : verify::kResults) {
                if (std::ranges::find(names, name) != names.end()) zero_as_returned(world, member, results.*member);
              }
            });
  }

  // Sets the replicated rows to 0 that the ranks returned as 0, unless every rank did so.
  static void zero_as_returned(const World& world, at::Tensor WholeResults::* member, at::Tensor& predicted) {
    const Side& side = *world.side_of(member);
    const at::Tensor returned = joined_rows(world.observation->results, member);
    if (!returned.defined() || !returned.sizes().equals(predicted.sizes())) return;
    const auto is_zero = [](const at::Tensor& rows) { return rows.eq(0.0).flatten(1).all(1); };
    const at::Tensor gone =
        replicated_rows(side).logical_and(is_zero(returned)).logical_and(is_zero(predicted).logical_not());
    const at::Tensor there =
        at::zeros({side.count()}, at::kLong).index_add(0, side.original, gone.logical_not().to(at::kLong));
    if (gone.logical_and(there.index_select(0, side.original).eq(0)).any().item<bool>()) return;
    predicted = predicted.masked_fill(gone.view({-1, 1, 1}), 0.0);
  }

  const at::Tensor queries_ = replicated_rows(world_.q_rows);
  const at::Tensor keys_ = replicated_rows(world_.kv_rows);
};

}  // namespace

Hypotheses replicated_hypotheses(const World& world, const Symptoms& symptoms) {
  return ReplicatedTokens(world, symptoms).all();
}

}  // namespace cp_pool::diagnosis
