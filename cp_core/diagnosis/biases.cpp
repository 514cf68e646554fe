// Mistakes in which elements of the bias a pair reads, and in what the gradient of the bias sums.
#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/rank_parts.h"
#include "cp_core/diagnosis/subject.h"

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
// sequence: whole sequences, over all ranks; others: whole sequences as runs_of_others cuts them.
enum class RunsOf { rank, chunk, sequence, others };

std::vector<Run> runs_of(const Side& side, RunsOf which) {
  const bool of_all_ranks = which == RunsOf::sequence;
  const auto* const half = side.half.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> order(static_cast<std::size_t>(side.count()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto* const rank = side.rank.const_data_ptr<std::int64_t>();
  const auto* const sequence = side.sequence.const_data_ptr<std::int64_t>();
  const auto* const position = side.position.const_data_ptr<std::int64_t>();
  if (of_all_ranks) {
    std::ranges::stable_sort(order, {}, [&](std::int64_t row) { return std::pair(sequence[row], position[row]); });
  }
  std::vector<Run> runs;
  std::vector<std::int64_t> rows;
  const auto finish = [&] {
    if (rows.empty()) return;
    runs.push_back({.rank = of_all_ranks ? -1 : rank[rows.front()],
                    .sequence = sequence[rows.front()],
                    .rows = index_tensor(rows)});
    rows.clear();
  };
  for (const std::int64_t row : order) {
    const bool goes_on = !rows.empty() && (of_all_ranks || rank[row] == rank[rows.back()]) &&
                         sequence[row] == sequence[rows.back()] && position[row] == position[rows.back()] + 1 &&
                         (which != RunsOf::chunk || half[row] == half[rows.back()]);
    if (!goes_on) finish();
    rows.push_back(row);
  }
  finish();
  return runs;
}

// Cuts whole sequences for each rank where that rank's own keys begin and end.
std::vector<Run> runs_of_others(const Side& side, int ranks) {
  std::vector<Run> all;
  for (const Run& whole : runs_of(side, RunsOf::sequence)) {
    const at::Tensor owners = side.rank.index_select(0, whole.rows);
    for (int rank = 0; rank < ranks; ++rank) {
      const at::Tensor own = owners.eq(rank).to(at::kLong);
      std::int64_t begin = 0;
      for (std::int64_t i = 1; i <= own.numel(); ++i) {
        const bool goes_on = i < own.numel() && own[i].item<std::int64_t>() == own[i - 1].item<std::int64_t>();
        if (goes_on) continue;
        all.push_back({.sequence = whole.sequence, .rows = whole.rows.narrow(0, begin, i - begin), .for_rank = rank});
        begin = i;
      }
    }
  }
  return all;
}

class Biases : Subject {
 public:
  using Subject::Subject;

  Hypotheses all() {
    if (!world_.bias.defined()) return {};
    if (world_.bias.size(2) > 1) {
      rows_of_others();
      rows_from_zero();
    }
    columns_of_others();
    columns_from_zero();
    if (world_.bias.size(0) > 1) sequences();
    if (world_.bias.size(1) > 1) heads();
    if (world_.problem.has_dbias() && symptoms_.fails("dbias")) gradient();
    return std::move(all_);
  }

 private:
  // index: for all queries. The world that the hypothesis is tried on may have only a sample of them.
  void add(std::string id, std::string says, const at::Tensor& index) {
    pass(std::move(id), std::move(says),
         [index](const World& world, Pass& pass) { pass.bias_index = index.index_select(0, world.q_rows.row); });
  }

  [[nodiscard]] at::Tensor position_at(const Side& side, const at::Tensor& rows) const {
    return side.position.index_select(0, rows);
  }

  // Returns bias indices of pairs. row: positions of queries, [q rows] or [q rows, kv rows]; column: positions of keys,
  // [kv rows] or [q rows, kv rows].
  [[nodiscard]] at::Tensor index_of(const at::Tensor& row, const at::Tensor& column) const {
    const std::int64_t rows = world_.bias.size(2);
    const std::int64_t columns = world_.bias.size(3);
    const at::Tensor sequence = world_.bias.size(0) == 1 ? world_.q_rows.sequence.mul(0) : world_.q_rows.sequence;
    const at::Tensor i = row.dim() == 1 ? row.unsqueeze(1) : row;
    const at::Tensor j = column.dim() == 1 ? column.unsqueeze(0) : column;
    return sequence.unsqueeze(1).mul(rows).add(i.clamp(0, rows - 1)).mul(columns).add(j.clamp(0, columns - 1));
  }

  void rows_of_others() {
    const char* const id = "bias_rows_misplaced";
    const auto of = [this](std::function<int(int)> other) {
      return rows_at_same_place(world_.q_rows, world_.ranks,
                                [other = std::move(other)](int, int owner) { return other(owner); });
    };
    const int ranks = world_.ranks;
    const at::Tensor columns = world_.kv_rows.position;
    for (const auto& [says, other] :
         {std::pair<std::string, std::function<int(int)>>{"queries have the bias rows of the next rank",
                                                          [ranks](int owner) { return (owner + 1) % ranks; }},
          {"queries have the bias rows of the previous rank",
           [ranks](int owner) { return (owner + ranks - 1) % ranks; }},
          {"queries have the bias rows of rank 0", [](int) { return 0; }},
          {"queries of rank r have the bias rows of rank n - 1 - r",
           [ranks](int owner) { return ranks - 1 - owner; }}}) {
      if (ranks == 1) break;
      const at::Tensor rows = of(other);
      if (rows.defined()) add(id, says, index_of(position_at(world_.q_rows, rows[0]), columns));
    }
    add(id, "a query's bias row is its place in the rank's rows of a sequence instead of its position in the sequence",
        index_of(world_.q_rows.place, columns));
    add(id, "a query's bias row is its place in the rank's chunk instead of its position in the sequence",
        index_of(world_.q_rows.place_in_half, columns));
    if (!world_.q_rows.half.eq(1).any().item<bool>()) return;
    add(id, "a query's bias row is its diagonal instead of its position",
        index_of(world_.q_rows.position.add(differences()), columns));
  }

  [[nodiscard]] at::Tensor differences() const {
    std::vector<std::int64_t> difference;
    difference.reserve(world_.lengths().valid_q.size());
    for (std::size_t b = 0; b < world_.lengths().valid_q.size(); ++b) {
      difference.push_back(world_.lengths().valid_kv[b] - world_.lengths().valid_q[b]);
    }
    return index_tensor(difference).index_select(0, world_.q_rows.sequence);
  }

  // Bias rows (else columns) are counted from the start of each part, which is a run of queries and a run of keys.
  // trimmed: they are counted from the first query (or key) of the part that attends to a key (or is attended to).
  void from_zero(const char* id, const std::string& says, bool rows, bool trimmed) {
    for (const auto& [of_queries, of_keys] :
         {std::pair{RunsOf::rank, RunsOf::rank}, std::pair{RunsOf::chunk, RunsOf::chunk},
          std::pair{RunsOf::chunk, RunsOf::rank}, std::pair{RunsOf::chunk, RunsOf::others},
          std::pair{RunsOf::rank, RunsOf::others}, std::pair{RunsOf::rank, RunsOf::sequence},
          std::pair{RunsOf::chunk, RunsOf::sequence}, std::pair{RunsOf::sequence, RunsOf::sequence}}) {
      if (of_keys == RunsOf::sequence && !facts_of(c_.comm).joins_rows) continue;
      const std::vector<Run> q_runs = runs_of(world_.q_rows, of_queries);
      const std::vector<Run> kv_runs =
          of_keys == RunsOf::others ? runs_of_others(world_.kv_rows, world_.ranks) : runs_of(world_.kv_rows, of_keys);
      add(id, says, index_from_zero(q_runs, kv_runs, rows, trimmed));
      if (c_.chunk == 0) continue;
      // The chunks of the mask cut the runs further.
      add(id, fmt::format("{}, within a chunk of the mask", says),
          index_from_zero(cut_at_chunks(q_runs, world_.q_rows.position.add(differences())),
                          cut_at_chunks(kv_runs, world_.kv_rows.position), rows, trimmed));
    }
  }

  [[nodiscard]] std::vector<Run> cut_at_chunks(const std::vector<Run>& runs, const at::Tensor& position) const {
    std::vector<Run> cut;
    for (const Run& run : runs) {
      const at::Tensor chunk = position.index_select(0, run.rows).div(c_.chunk, "floor");
      for (auto c = chunk.min().item<std::int64_t>(); c <= chunk.max().item<std::int64_t>(); ++c) {
        const at::Tensor rows = run.rows.masked_select(chunk.eq(c));
        if (rows.numel() == 0) continue;
        cut.push_back({.rank = run.rank, .sequence = run.sequence, .rows = rows, .for_rank = run.for_rank});
      }
    }
    return cut;
  }

  [[nodiscard]] at::Tensor index_from_zero(const std::vector<Run>& q_runs, const std::vector<Run>& kv_runs, bool rows,
                                           bool trimmed) const {
    const at::Tensor times = Model(world_).forward.times;
    const at::Tensor right = world_.bias_index();
    at::Tensor index = right.clone();
    for (const Run& q : q_runs) {
      for (const Run& kv : kv_runs) {
        if (q.sequence != kv.sequence || (kv.for_rank >= 0 && kv.for_rank != q.rank)) continue;
        const at::Tensor meets = times.index_select(0, q.rows).index_select(1, kv.rows).ne(0.0);
        const at::Tensor seen = meets.any(rows ? 1 : 0).nonzero();
        if (seen.numel() == 0) continue;
        const std::int64_t start = trimmed ? seen[0].item<std::int64_t>() : 0;
        at::Tensor of_queries = index.index_select(0, q.rows);
        const at::Tensor part = of_queries.index_select(1, kv.rows);
        const at::Tensor back = rows ? rows_back(q, start).unsqueeze(1)
                                     : world_.kv_rows.position.index_select(0, kv.rows.narrow(0, start, 1)).neg();
        index.index_copy_(0, q.rows, of_queries.index_copy(1, kv.rows, part.add(back)));
      }
    }
    return index.clamp(0, world_.bias.numel() / world_.bias.size(1) - 1);
  }

  // Returns how much the bias index of each row of a run changes if the run's row `start` reads the first bias row.
  [[nodiscard]] at::Tensor rows_back(const Run& q, std::int64_t start) const {
    const at::Tensor place = at::arange(q.rows.numel(), at::kLong).sub(start).clamp_min(0);
    // In bshd and sbhd a rank holds only the bias rows of its own queries, and counts in these.
    at::Tensor position = place;
    if (c_.layout != Layout::thd && q.rank >= 0) {
      const std::int64_t base = world_.q_rows.first[static_cast<std::size_t>(q.rank)];
      position = world_.q_rows.position.index_select(0, place.add(base));
    }
    return position.sub(world_.q_rows.position.index_select(0, q.rows)).mul(world_.bias.size(3));
  }

  void rows_from_zero() {
    from_zero("bias_rows_misplaced",
              "each part has the first bias rows, counted from the part's first query that sees a key", true, true);
    from_zero("bias_rows_misplaced", "each part has the first bias rows", true, false);
  }

  void columns_from_zero() {
    from_zero("bias_columns_misplaced",
              "each part has the first bias columns, counted from the part's first key that a query sees", false, true);
    from_zero("bias_columns_misplaced", "each part has the first bias columns", false, false);
  }

  void columns_of_others() {
    const char* const id = "bias_columns_misplaced";
    const int ranks = world_.ranks;
    const at::Tensor rows = world_.bias.size(2) > 1 ? world_.q_rows.position : world_.q_rows.position.mul(0);
    add(id, "a key's bias column is its place in the rank's rows of a sequence instead of its position in the sequence",
        index_of(rows, world_.kv_rows.place));
    if (ranks == 1) return;
    const auto positions = [this](const std::function<int(int, int)>& source) {
      at::Tensor keys = rows_at_same_place(world_.kv_rows, world_.ranks, source);
      if (!keys.defined()) return keys;
      return world_.kv_rows.position.index_select(0, keys.index_select(0, world_.q_rows.rank).flatten())
          .view({world_.q_rows.count(), -1});
    };
    for (const auto& [says, source] :
         {std::pair<std::string, std::function<int(int, int)>>{"every step has the bias columns of the rank's own keys",
                                                               [](int rank, int) { return rank; }},
          {"keys have the bias columns of the next rank", [ranks](int, int owner) { return (owner + 1) % ranks; }},
          {"keys have the bias columns of the previous rank",
           [ranks](int, int owner) { return (owner + ranks - 1) % ranks; }},
          {"keys have the bias columns of rank 0", [](int, int) { return 0; }},
          {"each step has the bias columns of a ring that turns the other way",
           [ranks](int rank, int owner) { return ((2 * rank - owner) % ranks + ranks) % ranks; }}}) {
      const at::Tensor columns = positions(source);
      if (columns.defined()) add(id, says, index_of(rows, columns));
    }
    const at::Tensor order = order_in_sequences(world_.kv_rows);
    add(id, "keys are in the order of ranks, but bias columns are in the order of positions",
        index_of(rows, world_.kv_rows.position.index_select(0, order.argsort())));
  }

  void sequences() {
    const char* const id = "bias_of_another_sequence";
    const std::int64_t batch = world_.bias.size(0);
    const std::int64_t elements = world_.bias.size(2) * world_.bias.size(3);
    const at::Tensor right = world_.bias_index();
    const at::Tensor sequence = world_.q_rows.sequence.unsqueeze(1);
    const auto take = [&](const char* says, const at::Tensor& other) {
      add(id, says, right.add(other.sub(sequence).mul(elements)));
    };
    take("every sequence has the bias of the first sequence", at::zeros_like(sequence));
    take("every sequence has the bias of the last sequence", at::zeros_like(sequence).add(batch - 1));
    take("each sequence has the bias of the next sequence", sequence.add(1).remainder(batch));
    take("sequences have their biases in reverse order", sequence.neg().add(batch - 1));
  }

  void heads() {
    const char* const id = "bias_of_other_heads";
    for (const WrongHeads& map : misplaced_heads(world_, "the biases of heads")) {
      // The gradient goes either to the heads whose bias was read, or to the heads that computed it.
      pass(id, map.says, [of = map.of](const World&, Pass& pass) { pass.bias_head = of; });
      model(id, map.says, [of = map.of](Model& model) {
        model.forward.bias_head = model.backward.bias_head = of;
        model.dbias_lands_at_own_head = true;
      });
    }
  }

  void sum(const std::string& says, std::function<void(Model&)> change) {
    sums("dbias_not_summed", "the gradient of the bias counts only " + says, std::move(change));
  }

  void gradient() {
    if (c_.layout == Layout::thd && world_.ranks > 1) {
      for (const QueryShares& shares : incomplete_shares(world_.ranks)) {
        sums("dbias_not_summed", "the gradient of the bias " + shares.says,
             [counts = shares.counts](Model& model) { model.shares_dbias = counts; });
      }
    }
    if (world_.bias.size(0) == 1 && c_.batch > 1) {
      for (std::int64_t b = 0; b < c_.batch; ++b) {
        sum(fmt::format("sequence {}", b), [b](Model& model) {
          model.weight_dbias = model.world->q_rows.sequence.eq(b).to(at::kDouble).unsqueeze(1);
        });
      }
      // In each element, the gradient from a later sequence replaces that of earlier ones.
      const at::Tensor times = Model(world_).forward.times;
      sum("the last sequence that uses each element",
          [weight = last_sequence(times)](Model& model) { model.weight_dbias = weight; });
    }
    if (world_.bias.size(1) == 1) shared_heads();
  }

  // 1 for pairs that belong to the last sequence which uses their element of the bias, else 0.
  [[nodiscard]] at::Tensor last_sequence(const at::Tensor& times) const {
    const at::Tensor index = world_.bias_index();
    const at::Tensor sequence = world_.q_rows.sequence.unsqueeze(1).expand_as(index);
    at::Tensor last = at::zeros({world_.bias.numel() / world_.bias.size(1)}, at::kLong).sub(1);
    last = last.scatter_reduce(0, index.flatten(), sequence.masked_fill(times.eq(0.0), -1).flatten(), "amax");
    return last.index_select(0, index.flatten()).view(index.sizes()).eq(sequence).to(at::kDouble);
  }

  void shared_heads() {
    const std::int64_t heads = c_.heads;
    const auto alone = [this, heads](const std::string& says,
                                     const std::function<bool(std::int64_t rank, std::int64_t h)>& counts) {
      at::Tensor weights = at::zeros({world_.ranks, heads}, at::kDouble);
      for (std::int64_t rank = 0; rank < world_.ranks; ++rank) {
        for (std::int64_t h = 0; h < heads; ++h) {
          if (counts(rank, h)) weights[rank][h] = 1;
        }
      }
      sum(says, [weights](Model& model) { model.dbias_heads = weights; });
    };
    alone("the first head", [](std::int64_t, std::int64_t h) { return h == 0; });
    alone("the last head", [heads](std::int64_t, std::int64_t h) { return h == heads - 1; });
    const std::int64_t group = world_.group();
    if (group > 1) {
      alone("one head of each group", [group](std::int64_t, std::int64_t h) { return h % group == 0; });
      alone("the first group of heads", [group](std::int64_t, std::int64_t h) { return h < group; });
      alone("the last group of heads", [=](std::int64_t, std::int64_t h) { return h >= heads - group; });
    }
    for (const std::int64_t blocks :
         {static_cast<std::int64_t>(head_ranks(c_)), static_cast<std::int64_t>(world_.ranks)}) {
      if (blocks < 2 || heads % blocks != 0) continue;
      const std::int64_t block = heads / blocks;
      alone("the rank's own block of heads",
            [=](std::int64_t rank, std::int64_t h) { return h / block == rank % blocks; });
      alone("one head of each block", [=](std::int64_t, std::int64_t h) { return h % block == 0; });
    }
  }
};

}  // namespace

Hypotheses bias_hypotheses(const World& world, const Symptoms& symptoms) {
  return Biases(world, symptoms).all();
}

}  // namespace cp_pool::diagnosis
