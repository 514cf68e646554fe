#include "cp_core/builtin/whole_sequences.h"

#include <algorithm>
#include <limits>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "cp_core/layout.h"
#include "cp_core/mutation.h"
#include "cp_core/thd/copy_rows.h"

namespace cp_pool {
namespace {

using Lengths = std::vector<std::int64_t>;

// The rows that a rank holds of sequences whose first tokens are replicated.
struct ShardRuns {
  std::vector<Run> replicated;
  std::vector<Run> cut;
  std::int64_t rows = 0;
};

// first_row: the index of the rank's first row.
ShardRuns shard_runs(const Lengths& valid, const Lengths& padded, std::int64_t replicated, int ranks, int rank,
                     std::int64_t first_row = 0) {
  Lengths rest;
  for (std::size_t b = 0; b < padded.size(); ++b) rest.push_back(padded[b] - replicated_tokens(replicated, valid[b]));
  const std::vector<Run> chunks = local_runs(rest, ranks, rank);
  auto next = chunks.begin();
  ShardRuns runs;
  std::int64_t row = first_row;
  for (std::size_t b = 0; b < padded.size(); ++b) {
    const auto sequence = static_cast<std::int64_t>(b);
    const std::int64_t first = replicated_tokens(replicated, valid[b]);
    if (first > 0) runs.replicated.push_back({.sequence = sequence, .begin = 0, .end = first, .row = row});
    row += first;
    for (; next != chunks.end() && next->sequence == sequence; ++next) {
      runs.cut.push_back({.sequence = sequence, .begin = next->begin + first, .end = next->end + first, .row = row});
      row += next->size();
    }
  }
  runs.rows = row - first_row;
  return runs;
}

// Returns a run for each position of the sequences, once, in the concatenated shards of all ranks. Replicated positions
// are those in this rank's own shard.
ShardRuns runs_of_all(const Lengths& valid, const Lengths& padded, std::int64_t replicated, const Communicator& cp) {
  ShardRuns all;
  for (int rank = 0; rank < cp.size(); ++rank) {
    const ShardRuns runs = shard_runs(valid, padded, replicated, cp.size(), rank, all.rows);
    all.cut.insert(all.cut.end(), runs.cut.begin(), runs.cut.end());
    if (rank == cp.rank()) all.replicated = runs.replicated;
    all.rows += runs.rows;
  }
  return all;
}

std::vector<Run> joined(std::vector<Run> first, const std::vector<Run>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::vector<Run> without_padding(const std::vector<Run>& runs, const Lengths& valid) {
  std::vector<Run> kept;
  for (Run run : runs) {
    run.end = std::min(run.end, valid[static_cast<std::size_t>(run.sequence)]);
    if (run.begin < run.end) kept.push_back(run);
  }
  return kept;
}

#ifdef CP_POOL_MUTANTS
// Each sequence begins with its replicated rows twice, and its other rows follow.
std::vector<Run> with_replicated_twice(const ShardRuns& runs, std::size_t sequences) {
  Lengths replicated(sequences, 0);
  std::vector<Run> twice = runs.replicated;
  for (const Run& run : runs.replicated) {
    replicated[static_cast<std::size_t>(run.sequence)] = run.end;
    twice.push_back({.sequence = run.sequence, .begin = run.end, .end = 2 * run.end, .row = run.row});
  }
  for (Run run : runs.cut) {
    run.begin += replicated[static_cast<std::size_t>(run.sequence)];
    run.end += replicated[static_cast<std::size_t>(run.sequence)];
    twice.push_back(run);
  }
  return twice;
}

std::vector<Run> without_replicated(std::vector<Run> runs, const Lengths& valid, std::int64_t replicated) {
  for (Run& run : runs) {
    const std::int64_t first = replicated_tokens(replicated, valid[static_cast<std::size_t>(run.sequence)]);
    const std::int64_t lost = std::clamp<std::int64_t>(first - run.begin, 0, run.size());
    run.begin += lost;
    run.row += lost;
  }
  std::erase_if(runs, [](const Run& run) { return run.size() == 0; });
  return runs;
}

// Keeps only the copies from rows that this rank computed itself.
std::vector<RowCopy> from_own_rows(const std::vector<RowCopy>& copies, const Communicator& cp, std::int64_t rows) {
  std::vector<RowCopy> own = copies_of_rank(copies, cp.rank(), rows);
  for (RowCopy& copy : own) copy.source += cp.rank() * rows;
  return own;
}
#endif

// Cuts a bias to this many rows and columns, or extends it with 0.
at::Tensor resized(const at::Tensor& bias, std::int64_t rows, std::int64_t columns) {
  if (bias.size(2) == rows && bias.size(3) == columns) return bias;
  const at::Tensor out = at::zeros({bias.size(0), bias.size(1), rows, columns}, bias.options());
  const auto common = [&](const at::Tensor& of) {
    return of.narrow(2, 0, std::min(rows, bias.size(2))).narrow(3, 0, std::min(columns, bias.size(3)));
  };
  common(out).copy_(common(bias));
  return out;
}

// Convert [batch, heads, rows, columns] to [rows, batch, heads, columns], and back.
at::Tensor rows_first(const at::Tensor& bias) {
  return bias.permute({2, 0, 1, 3}).contiguous();
}
at::Tensor rows_third(const at::Tensor& by_row) {
  return by_row.permute({1, 2, 0, 3}).contiguous();
}

at::Tensor filled_rows(std::int64_t rows, const at::Tensor& like, double value = 0) {
  std::vector<std::int64_t> sizes = like.sizes().vec();
  sizes.front() = rows;
  return at::full(sizes, value, like.options());
}

}  // namespace

AttentionProblem whole_sequences_problem(const Case& c, const SequenceLengths& lengths) {
  Case packed = c;
  packed.layout = Layout::thd;
  return make_problem(packed, without_replication(lengths, c.cp_size));
}

at::Tensor gathered(Communicator& cp, const at::Tensor& rows, std::string_view what) {
  std::vector<std::int64_t> sizes = rows.sizes().vec();
  sizes.front() *= cp.size();
  at::Tensor all = at::empty(sizes, rows.options());
  cp.all_gather(all, rows.contiguous(), what)->wait();
  return all;
}

WholeSequences::WholeSequences(const Case& c, const SequenceLengths& lengths, Communicator& cp)
    : case_(c),
      lengths_(lengths),
      whole_lengths_(without_replication(lengths, c.cp_size)),
      cp_(cp),
      q_(make_side(lengths.valid_q, lengths.padded_q, whole_lengths_.padded_q, /*keys=*/false)),
      kv_(make_side(lengths.valid_kv, lengths.padded_kv, whole_lengths_.padded_kv, /*keys=*/true)) {}

WholeSequences::Side WholeSequences::make_side(const Lengths& valid, const Lengths& padded, const Lengths& whole,
                                               bool keys) const {
  const std::int64_t replicated = keys ? lengths_.replicated_kv : lengths_.replicated_q;
  const ShardRuns all = runs_of_all(valid, padded, replicated, cp_);
  const ShardRuns own = shard_runs(valid, padded, replicated, cp_.size(), cp_.rank());
  const std::vector<Run> whole_of_all = gathered_runs(whole, cp_.size(), 0, cp_.size());
  const std::vector<Run> own_whole = without_padding(local_runs(whole, cp_.size(), cp_.rank()), valid);
  const std::vector<Run> source = joined(all.replicated, all.cut);
  return {.shard_rows = own.rows,
          .whole_rows = total_rows(whole_of_all) / cp_.size(),
          .to_whole = row_copies(
              CP_MUTATE(replicated_keys_twice, source, keys ? with_replicated_twice(all, valid.size()) : source),
              CP_MUTATE(
                  replicated_keys_dropped, own_whole,
                  keys && cp_.rank() + 1 < cp_.size() ? without_replicated(own_whole, valid, replicated) : own_whole)),
          .cut_to_shard = row_copies(whole_of_all, without_padding(own.cut, valid)),
          .replicated_to_shard = row_copies(whole_of_all, own.replicated)};
}

at::Tensor WholeSequences::whole(const Side& side, const at::Tensor& rows, std::string_view what) const {
  at::Tensor out = filled_rows(side.whole_rows, rows);
  copy_rows(gathered(cp_, rows, what), out, side.to_whole);
  return out;
}

at::Tensor WholeSequences::shard(const Side& side, const std::vector<RowCopy>& replicated, const at::Tensor& rows,
                                 std::string_view what, double padding) const {
  at::Tensor out = filled_rows(side.shard_rows, rows, padding);
  const at::Tensor all = gathered(cp_, rows, what);
  copy_rows(all, out, side.cut_to_shard);
  copy_rows(all, out, replicated);
  return out;
}

AttentionInputs WholeSequences::inputs(const verify::Shards& shards) const {
  const auto packed = [this](const at::Tensor& shard) { return to_packed(shard, case_.layout); };
  AttentionInputs inputs{.q = whole(q_, packed(shards.q), "replicated tokens: q"),
                         .k = whole(kv_, packed(shards.k), "replicated tokens: k"),
                         .v = whole(kv_, packed(shards.v), "replicated tokens: v"),
                         .bias = {},
                         .sink = shards.sink};
  if (shards.bias.defined()) inputs.bias = whole_bias(shards.bias);
  return inputs;
}

at::Tensor WholeSequences::dout(const verify::Shards& shards) const {
  return whole(q_, to_packed(shards.dout, case_.layout), "replicated tokens: dout");
}

// The step is in thd, where every rank has the whole bias. In the other layouts a rank has all columns of its own rows,
// so only rows have to be gathered.
at::Tensor WholeSequences::whole_bias(const at::Tensor& bias) const {
  const std::int64_t columns = std::ranges::max(whole_lengths_.padded_kv);
  if (case_.bias == BiasShape::shape_111s) return resized(bias, 1, columns);
  const std::int64_t rows = std::ranges::max(whole_lengths_.padded_q);
  if (case_.layout == Layout::thd) return resized(bias, rows, columns);
  // All sequences have the same length here, so the rows of one stand for all.
  const Lengths valid{lengths_.valid_q.front()};
  const ShardRuns all = runs_of_all(valid, {lengths_.padded_q.front()}, lengths_.replicated_q, cp_);
  const at::Tensor by_row = rows_first(bias);
  at::Tensor whole = filled_rows(valid.front(), by_row);
  copy_rows(gathered(cp_, by_row, "replicated tokens: bias"), whole,
            row_copies(joined(all.replicated, all.cut), whole_runs(valid)));
  return resized(rows_third(whole), rows, columns);
}

at::Tensor WholeSequences::shard_of_dbias(const at::Tensor& dbias, const at::Tensor& bias) const {
  if (case_.layout == Layout::thd) return resized(dbias, bias.size(2), bias.size(3));
  const Lengths padded{lengths_.padded_q.front()};
  const ShardRuns own = shard_runs({lengths_.valid_q.front()}, padded, lengths_.replicated_q, cp_.size(), cp_.rank());
  const at::Tensor whole = rows_first(resized(dbias, padded.front(), bias.size(3)));
  at::Tensor rows = filled_rows(own.rows, whole);
  copy_rows(whole, rows, row_copies(whole_runs(padded), own.replicated));
  copy_rows(whole, rows, row_copies(whole_runs(padded), own.cut));
  return rows_third(rows);
}

void WholeSequences::fill(const AttentionForward& forward, verify::Results& results) const {
  const std::vector<RowCopy>& replicated = q_.replicated_to_shard;
  const at::Tensor out =
      shard(q_, CP_MUTATE(replicated_out_of_one_rank, replicated, from_own_rows(replicated, cp_, q_.whole_rows)),
            forward.out, "replicated tokens: out");
  const at::Tensor lse = shard(q_, replicated, forward.lse.t().contiguous(), "replicated tokens: lse",
                               -std::numeric_limits<double>::infinity());
  results.out = from_packed(out, case_.layout, case_.batch);
  results.lse = lse.t().contiguous();
  results.max_logit = forward.max_logit;
}

void WholeSequences::fill(const AttentionGradients& gradients, const verify::Shards& shards,
                          verify::Results& results) const {
  const auto of_side = [this](const Side& side, const at::Tensor& rows, std::string_view what) {
    const std::vector<RowCopy>& replicated = side.replicated_to_shard;
    const at::Tensor packed = shard(
        side, CP_MUTATE(replicated_gradients_not_summed, replicated, from_own_rows(replicated, cp_, side.whole_rows)),
        rows, what);
    return from_packed(packed, case_.layout, case_.batch);
  };
  results.dq = of_side(q_, gradients.dq, "replicated tokens: dq");
  results.dk = of_side(kv_, gradients.dk, "replicated tokens: dk");
  results.dv = of_side(kv_, gradients.dv, "replicated tokens: dv");
  results.dsink = gradients.dsink;
  if (gradients.dbias.defined()) results.dbias = shard_of_dbias(gradients.dbias, shards.bias);
}

}  // namespace cp_pool
