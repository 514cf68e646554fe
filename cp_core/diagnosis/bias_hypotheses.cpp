// Mistakes in which elements of the bias a pair reads, and in what the gradient of the bias sums.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/rank_parts.h"

namespace cp_pool::diagnosis {
namespace {

// How rows are cut into runs: consecutive positions of a sequence that an implementation computes with at once. rank:
// the stretches that each rank holds; chunk: those cut between the rank's two chunks; sequence: whole sequences, over
// all ranks; others: whole sequences, cut for the queries of each rank where that rank's own keys begin and end.
enum class RunsOf { rank, chunk, sequence, others };

// int64 [rows]
struct Runs {
  at::Tensor number;
  at::Tensor place;  // of the row in its run
};

// Cuts rows in this order between positions that do not follow each other, and where the label changes.
Runs cut(const Side& side, const at::Tensor& order, const at::Tensor& label) {
  const at::Tensor rows = at::arange(order.numel(), at::kLong);
  at::Tensor begins = rows.eq(0);
  for (const at::Tensor& of_row : {side.position.sub(order.argsort()), side.sequence, label}) {
    const at::Tensor sorted = of_row.index_select(0, order);
    begins = begins.logical_or(sorted.ne(sorted.roll(1)));
  }
  const at::Tensor first = std::get<0>(rows.mul(begins).cummax(0));
  const at::Tensor back = order.argsort();
  return {.number = begins.cumsum(0).index_select(0, back), .place = rows.sub(first).index_select(0, back)};
}

Runs runs_of(const Side& side, RunsOf which, int rank) {
  switch (which) {
    case RunsOf::rank:
      return cut(side, side.row, side.rank);
    case RunsOf::chunk:
      return cut(side, side.row, side.rank.mul(2).add(side.half));
    case RunsOf::sequence:
      return cut(side, order_in_sequences(side).argsort(), side.sequence);
    case RunsOf::others:
      return cut(side, order_in_sequences(side).argsort(), side.rank.eq(rank).to(at::kLong));
  }
  return {};
}

class Biases : public Subject {
 public:
  Biases(const DenseProblem& dense, const Symptoms& symptoms) : Subject(dense, symptoms) {
    if (!dense_.bias.defined()) return;
    if (dense_.bias.size(2) > 1) from_zero(/*rows=*/true);
    from_zero(/*rows=*/false);
    columns_of_own_rows();
    if (dense_.bias.size(0) > 1) {
      const std::int64_t elements = dense_.bias.size(2) * dense_.bias.size(3);
      add("bias_of_another_sequence", "every sequence has the bias of the first sequence",
          dense_.bias_index().sub(dense_.q_rows.sequence.unsqueeze(1).mul(elements)));
    }
    if (dense_.bias.size(1) > 1) heads();
    if (dense_.problem.has_dbias() && symptoms_.fails("dbias")) gradient();
  }

 private:
  // index: for all queries. The problem that the hypothesis is tried on may have only a sample of them.
  void add(std::string id, std::string says, const at::Tensor& index) {
    pass(std::move(id), std::move(says),
         [index](const DenseProblem& dense, Pass& pass) { pass.bias_index = index.index_select(0, dense.q_rows.row); });
  }

  // Bias rows (else columns) are counted from the first query (or key) of each part that attends to a key (or is
  // attended to). A part is a run of queries and a run of keys.
  void from_zero(bool rows) {
    const char* const what = rows ? "rows" : "columns";
    const std::string id = fmt::format("bias_{}_misplaced", what);
    const std::string says = fmt::format("each part has the first bias {}, counted from the part's first {}", what,
                                         rows ? "query that sees a key" : "key that a query sees");
    for (const auto& [of_queries, of_keys] :
         {std::pair{RunsOf::rank, RunsOf::rank}, std::pair{RunsOf::chunk, RunsOf::chunk},
          std::pair{RunsOf::chunk, RunsOf::rank}, std::pair{RunsOf::chunk, RunsOf::others},
          std::pair{RunsOf::rank, RunsOf::others}, std::pair{RunsOf::rank, RunsOf::sequence},
          std::pair{RunsOf::chunk, RunsOf::sequence}, std::pair{RunsOf::sequence, RunsOf::sequence}}) {
      if (of_keys == RunsOf::sequence && !facts_of(c_.comm).joins_rows) continue;
      add(id, says, index_from_zero(of_queries, of_keys, rows));
    }
  }

  [[nodiscard]] at::Tensor index_from_zero(RunsOf of_queries, RunsOf of_keys, bool rows) const {
    const Side& queries = dense_.q_rows;
    const Side& keys = dense_.kv_rows;
    const Runs q = runs_of(queries, of_queries, 0);
    std::vector<at::Tensor> numbers;  // of the runs of keys, for the queries of each rank
    numbers.reserve(static_cast<std::size_t>(dense_.ranks));
    for (int rank = 0; rank < dense_.ranks; ++rank) numbers.push_back(runs_of(keys, of_keys, rank).number);
    const at::Tensor part =
        q.number.unsqueeze(1).mul(keys.count() + 1).add(at::stack(numbers).index_select(0, queries.rank));
    // The place of the part's first query that sees a key, or the position of its first key that a query sees.
    const at::Tensor seen = SimulatedStep(dense_).forward.times.ne(0.0);
    const at::Tensor counted = (rows ? q.place.unsqueeze(1) : keys.position.unsqueeze(0)).expand_as(part);
    const std::int64_t nowhere = queries.count() + counted.max().item<std::int64_t>() + 1;
    const at::Tensor first =
        at::full({part.max().item<std::int64_t>() + 1}, nowhere, at::kLong)
            .scatter_reduce(0, part.flatten(), counted.masked_fill(seen.logical_not(), nowhere).flatten(), "amin")
            .take(part);
    const at::Tensor right = dense_.bias_index();
    const at::Tensor moved = rows ? right.add(rows_back(q, of_queries, first)) : right.sub(first);
    return at::where(first.eq(nowhere), right, moved).clamp(0, dense_.bias.numel() / dense_.bias.size(1) - 1);
  }

  // Returns how much the bias index of each pair changes if the row at place `start` of the run reads the first bias
  // row.
  [[nodiscard]] at::Tensor rows_back(const Runs& q, RunsOf which, const at::Tensor& start) const {
    const Side& side = dense_.q_rows;
    at::Tensor position = q.place.unsqueeze(1).sub(start).clamp_min(0);
    // In bshd and sbhd a rank holds only the bias rows of its own queries, and counts in these.
    if (c_.layout != Layout::thd && which != RunsOf::sequence) {
      const at::Tensor base = index_tensor(side.first).index_select(0, side.rank);
      position = side.position.take(position.add(base.unsqueeze(1)));
    }
    return position.sub(side.position.unsqueeze(1)).mul(dense_.bias.size(3));
  }

  // At every step of a ring, a rank uses the bias columns of its own keys.
  void columns_of_own_rows() {
    if (dense_.ranks == 1) return;
    const at::Tensor own = rows_at_same_place(dense_.kv_rows, dense_.ranks, [](int rank, int) { return rank; });
    if (!own.defined()) return;
    const at::Tensor positions = dense_.kv_rows.position.take(own);
    add("bias_columns_misplaced", "the bias columns of the rank's own rows are used at every step",
        dense_.bias_index_at(dense_.q_rows.sequence, dense_.q_rows.position,
                             positions.index_select(0, dense_.q_rows.rank)));
  }

  void heads() {
    const char* const id = "bias_of_other_heads";
    for (const WrongHeads& map : misplaced_heads(dense_, "the biases of heads")) {
      // The gradient goes either to the heads whose bias was read, or to the heads that computed it.
      pass(id, map.says, [of = map.of](const DenseProblem&, Pass& pass) { pass.bias_head = of; });
      model(id, map.says, [of = map.of](SimulatedStep& model) {
        model.forward.bias_head = model.backward.bias_head = of;
        model.dbias_lands_at_own_head = true;
      });
    }
  }

  void sum(const std::string& says, std::function<void(SimulatedStep&)> change) {
    sums("dbias_not_summed", "the gradient of the bias " + says, std::move(change));
  }

  void gradient() {
    if (c_.layout == Layout::thd && dense_.ranks > 1) {
      for (const QueryShares& shares : incomplete_shares(dense_.ranks)) {
        sum(shares.says, [counts = shares.counts](SimulatedStep& model) { model.shares_dbias = counts; });
      }
    }
    if (dense_.bias.size(0) == 1 && c_.batch > 1) {
      for (std::int64_t b = 0; b < c_.batch; ++b) {
        sum(fmt::format("counts only sequence {}", b), [b](SimulatedStep& model) {
          model.weight_dbias = model.dense->q_rows.sequence.eq(b).to(at::kDouble).unsqueeze(1);
        });
      }
    }
    if (dense_.bias.size(1) == 1) shared_heads();
  }

  void shared_heads() {
    const at::Tensor head = at::arange(c_.heads, at::kLong);
    const at::Tensor rank = at::arange(dense_.ranks, at::kLong).unsqueeze(1);
    const auto alone = [&](const std::string& says, const at::Tensor& counts) {
      const at::Tensor weights = counts.to(at::kDouble).expand({dense_.ranks, c_.heads});
      sum("counts only " + says, [weights](SimulatedStep& model) { model.dbias_heads = weights; });
    };
    alone("the first head", head.eq(0));
    for (const std::int64_t blocks : block_counts(dense_, c_.heads)) {
      const std::int64_t block = c_.heads / blocks;
      alone("the rank's own block of heads", head.div(block, "floor").eq(rank.remainder(blocks)));
      alone("one head of each block", head.remainder(block).eq(0));
    }
  }
};

}  // namespace

Hypotheses bias_hypotheses(const DenseProblem& dense, const Symptoms& symptoms) {
  return Biases(dense, symptoms).all();
}

}  // namespace cp_pool::diagnosis
