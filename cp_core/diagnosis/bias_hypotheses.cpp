// Mistakes in which elements of the bias a pair reads, and in what the gradient of the bias sums.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/rank_parts.h"

namespace cp_pool::diagnosis {
namespace {

// Consecutive positions of a sequence that an implementation computes with at once.
struct Run {
  std::int64_t rank = 0;  // the rank that holds the rows; -1: several ranks
  std::int64_t sequence = 0;
  at::Tensor rows;             // int64, ordered by position
  std::int64_t for_rank = -1;  // a run of keys that applies only to queries of this rank; -1: of all ranks
};

// How rows are cut into runs. rank: the stretches that each rank holds; chunk: those cut between the rank's two chunks;
// sequence: whole sequences, over all ranks; others: whole sequences, cut for the queries of each rank where that
// rank's own keys begin and end.
enum class RunsOf { rank, chunk, sequence, others };

std::vector<Run> runs_of(const Side& side, RunsOf which, int ranks) {
  std::vector<Run> runs;
  if (which == RunsOf::others) {
    for (const Run& whole : runs_of(side, RunsOf::sequence, ranks)) {
      const at::Tensor owners = side.rank.index_select(0, whole.rows);
      for (int rank = 0; rank < ranks; ++rank) {
        const at::Tensor own = owners.eq(rank);
        std::int64_t begin = 0;
        for (std::int64_t i = 1; i <= own.numel(); ++i) {
          if (i < own.numel() && own[i].item<bool>() == own[i - 1].item<bool>()) continue;
          runs.push_back(
              {.sequence = whole.sequence, .rows = whole.rows.narrow(0, begin, i - begin), .for_rank = rank});
          begin = i;
        }
      }
    }
    return runs;
  }
  const bool whole = which == RunsOf::sequence;
  const at::Tensor order = whole ? order_in_sequences(side).argsort() : side.row;
  const Side sorted = side.selected(order);
  const auto* const rank = sorted.rank.const_data_ptr<std::int64_t>();
  const auto* const sequence = sorted.sequence.const_data_ptr<std::int64_t>();
  const auto* const position = sorted.position.const_data_ptr<std::int64_t>();
  const auto* const half = sorted.half.const_data_ptr<std::int64_t>();
  std::int64_t begin = 0;
  for (std::int64_t i = 1; i <= side.count(); ++i) {
    if (i < side.count() && (whole || rank[i] == rank[i - 1]) && sequence[i] == sequence[i - 1] &&
        position[i] == position[i - 1] + 1 && (which != RunsOf::chunk || half[i] == half[i - 1])) {
      continue;
    }
    runs.push_back(
        {.rank = whole ? -1 : rank[begin], .sequence = sequence[begin], .rows = order.narrow(0, begin, i - begin)});
    begin = i;
  }
  return runs;
}

class Biases : Subject {
 public:
  using Subject::Subject;

  Hypotheses all() {
    if (!dense_.bias.defined()) return {};
    if (dense_.bias.size(2) > 1) from_zero(/*rows=*/true);
    from_zero(/*rows=*/false);
    columns_of_own_rows();
    if (dense_.bias.size(0) > 1) sequences();
    if (dense_.bias.size(1) > 1) heads();
    if (dense_.problem.has_dbias() && symptoms_.fails("dbias")) gradient();
    return std::move(all_);
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
      const std::vector<Run> q_runs = runs_of(dense_.q_rows, of_queries, dense_.ranks);
      const std::vector<Run> kv_runs = runs_of(dense_.kv_rows, of_keys, dense_.ranks);
      add(id, says, index_from_zero(q_runs, kv_runs, rows));
    }
  }

  [[nodiscard]] at::Tensor index_from_zero(const std::vector<Run>& q_runs, const std::vector<Run>& kv_runs,
                                           bool rows) const {
    const at::Tensor times = SimulatedStep(dense_).forward.times;
    const at::Tensor right = dense_.bias_index();
    at::Tensor index = right.clone();
    for (const Run& q : q_runs) {
      for (const Run& kv : kv_runs) {
        if (q.sequence != kv.sequence || (kv.for_rank >= 0 && kv.for_rank != q.rank)) continue;
        const at::Tensor meets = times.index_select(0, q.rows).index_select(1, kv.rows).ne(0.0);
        const at::Tensor seen = meets.any(rows ? 1 : 0).nonzero();
        if (seen.numel() == 0) continue;
        const auto start = seen[0].item<std::int64_t>();
        at::Tensor of_queries = index.index_select(0, q.rows);
        const at::Tensor part = of_queries.index_select(1, kv.rows);
        const at::Tensor back = rows ? rows_back(q, start).unsqueeze(1)
                                     : dense_.kv_rows.position.index_select(0, kv.rows.narrow(0, start, 1)).neg();
        index.index_copy_(0, q.rows, of_queries.index_copy(1, kv.rows, part.add(back)));
      }
    }
    return index.clamp(0, dense_.bias.numel() / dense_.bias.size(1) - 1);
  }

  // Returns how much the bias index of each row of a run changes if the run's row `start` reads the first bias row.
  [[nodiscard]] at::Tensor rows_back(const Run& q, std::int64_t start) const {
    const at::Tensor place = at::arange(q.rows.numel(), at::kLong).sub(start).clamp_min(0);
    // In bshd and sbhd a rank holds only the bias rows of its own queries, and counts in these.
    at::Tensor position = place;
    if (c_.layout != Layout::thd && q.rank >= 0) {
      const std::int64_t base = dense_.q_rows.first[static_cast<std::size_t>(q.rank)];
      position = dense_.q_rows.position.index_select(0, place.add(base));
    }
    return position.sub(dense_.q_rows.position.index_select(0, q.rows)).mul(dense_.bias.size(3));
  }

  // At every step of a ring, a rank uses the bias columns of its own keys.
  void columns_of_own_rows() {
    if (dense_.ranks == 1) return;
    const at::Tensor own = rows_at_same_place(dense_.kv_rows, dense_.ranks, [](int rank, int) { return rank; });
    if (!own.defined()) return;
    const at::Tensor positions = dense_.kv_rows.position.index_select(0, own.flatten()).view(own.sizes());
    add("bias_columns_misplaced", "the bias columns of the rank's own rows are used at every step",
        dense_.bias_index_at(dense_.q_rows.position, positions.index_select(0, dense_.q_rows.rank)));
  }

  void sequences() {
    const std::int64_t elements = dense_.bias.size(2) * dense_.bias.size(3);
    const at::Tensor sequence = dense_.q_rows.sequence.unsqueeze(1);
    add("bias_of_another_sequence", "every sequence has the bias of the first sequence",
        dense_.bias_index().sub(sequence.mul(elements)));
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
    const std::int64_t heads = c_.heads;
    const auto alone = [this, heads](const std::string& says,
                                     const std::function<bool(std::int64_t rank, std::int64_t h)>& counts) {
      at::Tensor weights = at::zeros({dense_.ranks, heads}, at::kDouble);
      for (std::int64_t rank = 0; rank < dense_.ranks; ++rank) {
        for (std::int64_t h = 0; h < heads; ++h) {
          if (counts(rank, h)) weights[rank][h] = 1;
        }
      }
      sum("counts only " + says, [weights](SimulatedStep& model) { model.dbias_heads = weights; });
    };
    alone("the first head", [](std::int64_t, std::int64_t h) { return h == 0; });
    for (const std::int64_t blocks :
         {static_cast<std::int64_t>(head_ranks(c_)), static_cast<std::int64_t>(dense_.ranks)}) {
      if (blocks < 2 || heads % blocks != 0) continue;
      const std::int64_t block = heads / blocks;
      alone("the rank's own block of heads",
            [=](std::int64_t rank, std::int64_t h) { return h / block == rank % blocks; });
      alone("one head of each block", [=](std::int64_t, std::int64_t h) { return h % block == 0; });
    }
  }
};

}  // namespace

Hypotheses bias_hypotheses(const DenseProblem& dense, const Symptoms& symptoms) {
  return Biases(dense, symptoms).all();
}

}  // namespace cp_pool::diagnosis
