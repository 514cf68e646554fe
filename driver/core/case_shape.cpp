#include "driver/core/case_shape.h"

#include <algorithm>

#include "cases/dual_chunk.h"
#include "driver/core/mapped.h"

namespace cp_pool {

namespace {

constexpr std::int64_t kFp32Bytes = 4;

// Pairs of a query and a key, without padding.
struct Pairs {
  std::int64_t all = 0;
  std::int64_t visible = 0;
};

// The pairs of these queries and these keys, in a sequence of sq valid queries and skv valid keys.
Pairs pairs_of(const Mask& mask, const Interval& queries, const Interval& keys, std::int64_t sq, std::int64_t skv) {
  const Interval valid_queries = intersect(queries, {.begin = 0, .end = sq});
  const Interval valid_keys = intersect(keys, {.begin = 0, .end = skv});
  Pairs pairs{.all = valid_queries.size() * valid_keys.size()};
  for (std::int64_t i = valid_queries.begin; i < valid_queries.end; ++i) {
    pairs.visible += count_visible(mask, i, valid_keys, sq, skv);
  }
  return pairs;
}

// Number of rows in a rank's shard, padding included.
std::int64_t rows_of_rank(const std::vector<std::int64_t>& valid, const std::vector<std::int64_t>& padded,
                          std::int64_t replicated, int ranks) {
  std::int64_t rows = 0;
  for (std::size_t b = 0; b < padded.size(); ++b) {
    const std::int64_t everybodys = replicated_tokens(replicated, valid[b]);
    rows += everybodys + (padded[b] - everybodys) / ranks;
  }
  return rows;
}

RankBytes bytes_of_rank(const Case& c, const SequenceLengths& lengths) {
  const std::int64_t bytes = c.dtype == DType::fp32 ? kFp32Bytes : 2;
  const std::int64_t q_rows = rows_of_rank(lengths.valid_q, lengths.padded_q, lengths.replicated_q, c.cp_size);
  const std::int64_t kv_rows = rows_of_rank(lengths.valid_kv, lengths.padded_kv, lengths.replicated_kv, c.cp_size);
  const std::int64_t kv = kv_rows * c.kv_heads * (c.head_dim_qk + c.head_dim_v);
  return {.heads = c.heads,
          .kv_heads = c.kv_heads,
          .q = q_rows * c.heads * c.head_dim_qk * bytes,
          .kv = kv * bytes,
          .out = q_rows * c.heads * c.head_dim_v * bytes,
          .dkv_sums = kv * kFp32Bytes,
          .statistic = q_rows * c.heads * kFp32Bytes};
}

// Positions per block. The padded length and its chunks are multiples of it.
std::int64_t block_size(std::int64_t padded, int ranks, std::int64_t most_blocks) {
  const std::int64_t chunk = padded / dual_chunks(ranks);
  for (std::int64_t size = 1; size < chunk; ++size) {
    if (chunk % size == 0 && padded / size <= most_blocks) return size;
  }
  return std::max<std::int64_t>(chunk, 1);
}

// One side of a drawing.
struct Blocks {
  std::int64_t size = 1;  // positions per block, except for the block of replicated tokens
  std::vector<Interval> positions;
  std::vector<int> ranks;

  void add(const Interval& block, int rank) {
    positions.push_back(block);
    ranks.push_back(rank);
  }
};

Blocks blocks_of(std::int64_t padded, std::int64_t replicated, int ranks, std::int64_t most_blocks) {
  Blocks blocks;
  if (replicated > 0) blocks.add({.begin = 0, .end = replicated}, CaseDrawing::kEveryRank);
  const std::int64_t cut = padded - replicated;
  const std::int64_t chunk = cut / dual_chunks(ranks);
  blocks.size = block_size(cut, ranks, most_blocks);
  for (std::int64_t at = 0; at < cut; at += blocks.size) {
    blocks.add({.begin = replicated + at, .end = replicated + at + blocks.size},
               owner_of_chunk(ranks, static_cast<int>(at / chunk)));
  }
  return blocks;
}

char block_of(const Mask& mask, const Interval& queries, const Interval& keys, std::int64_t sq, std::int64_t skv) {
  const Pairs pairs = pairs_of(mask, queries, keys, sq, skv);
  if (pairs.all == 0) return ' ';
  if (pairs.visible == 0) return '.';
  return pairs.visible == pairs.all ? '#' : '+';
}

}  // namespace

std::vector<Interval> owned_chunks(std::int64_t padded, int ranks, int rank) {
  const std::int64_t size = padded / dual_chunks(ranks);
  std::vector<Interval> chunks;
  for (const int half : {0, 1}) {
    const int chunk = dual_chunk(ranks, rank, half);
    chunks.push_back({.begin = chunk * size, .end = (chunk + 1) * size});
  }
  return chunks;
}

double Compute::forward_flops(const Case& c) const {
  return 2.0 * static_cast<double>(pairs) * static_cast<double>(heads) *
         static_cast<double>(c.head_dim_qk + c.head_dim_v);
}

double Compute::backward_flops(const Case& c) const {
  // The products for scores, dQ and dK are over the head dim of q and k, those for dP and dV over that of v.
  return 2.0 * static_cast<double>(pairs) * static_cast<double>(heads) *
         static_cast<double>(3 * c.head_dim_qk + 2 * c.head_dim_v);
}

Compute compute_with(const Case& c, const SequenceLengths& lengths, int rank, int owner) {
  const SequenceLengths cut = without_replication(lengths, c.cp_size);
  const Mask mask = make_mask(c);
  const int head_split = head_ranks(c);
  const int ring_ranks = c.cp_size / head_split;
  Compute out;
  out.heads = head_share(c.heads, c.kv_heads, head_split, rank % head_split).count;
  if (merges_parts(c) && owner != rank) return out;
  for (std::size_t b = 0; b < cut.valid_q.size(); ++b) {
    const std::vector<Interval> computed = merges_parts(c)
                                               ? std::vector{Interval{.begin = 0, .end = cut.valid_q[b]}}
                                               : owned_chunks(cut.padded_q[b], ring_ranks, rank / head_split);
    for (const Interval& queries : computed) {
      for (const Interval& keys : owned_chunks(cut.padded_kv[b], ring_ranks, owner)) {
        const Pairs pairs = pairs_of(mask, queries, keys, cut.valid_q[b], cut.valid_kv[b]);
        out.pairs += pairs.visible;
        ++(pairs.visible == 0 ? out.empty_tiles : pairs.visible == pairs.all ? out.full_tiles : out.band_tiles);
      }
    }
  }
  return out;
}

Compute compute_of(const Case& c, const SequenceLengths& lengths, int rank) {
  Compute out;
  for (int owner = 0; owner < c.cp_size / head_ranks(c); ++owner) {
    const Compute part = compute_with(c, lengths, rank, owner);
    out.full_tiles += part.full_tiles;
    out.band_tiles += part.band_tiles;
    out.empty_tiles += part.empty_tiles;
    out.pairs += part.pairs;
    out.heads = part.heads;
  }
  return out;
}

std::string_view exchange_words(const Case& c) {
  return merges_parts(c) ? "every rank gets out and lse of all ranks' keys, and merges them"
                         : facts_of(c.comm).exchange;
}

std::vector<Exchange> exchanges_of(const Case& c, const SequenceLengths& lengths) {
  if (!merges_parts(c)) {
    const RankBytes whole_sequences = bytes_of_rank(c, without_replication(lengths, c.cp_size));
    return facts_of(c.comm).exchanges(whole_sequences, rank_counts(c));
  }
  if (c.cp_size == 1) return {};
  // out is in fp32, and so has head_dim_v times the bytes of an lse.
  const std::int64_t bytes = bytes_of_rank(c, lengths).statistic * (c.head_dim_v + 1);
  return {
      {Pass::forward, "every rank sends out and lse of its keys to every other", 1, messages_to_all(c.cp_size, bytes)}};
}

Traffic traffic_of(const Case& c, const SequenceLengths& lengths) {
  std::vector<Traffic> by_rank(static_cast<std::size_t>(c.cp_size));
  for (const Exchange& exchange : exchanges_of(c, lengths)) {
    for (const Message& message : exchange.messages) {
      Traffic& sender = by_rank[static_cast<std::size_t>(message.from)];
      (exchange.pass == Pass::forward ? sender.forward : sender.backward) += exchange.times * message.bytes;
    }
  }
  Traffic traffic = std::ranges::max(by_rank, {}, [](const Traffic& of) { return of.forward + of.backward; });
  if (has_replicated(c) && !merges_parts(c)) {
    // Every rank gathers the rows of all ranks: the shards before a pass, and the results after it.
    const RankBytes shard = bytes_of_rank(c, lengths);
    const RankBytes whole = bytes_of_rank(c, without_replication(lengths, c.cp_size));
    traffic.forward += (c.cp_size - 1) * (shard.q + shard.kv + whole.out + whole.statistic);
    traffic.backward += (c.cp_size - 1) * (shard.out + whole.q + whole.kv);
  }
  if (!c.training) traffic.backward = 0;
  return traffic;
}

CaseDrawing draw_case(const Case& c, const SequenceLengths& lengths, std::size_t sequence, std::int64_t most_blocks) {
  const std::int64_t sq = lengths.valid_q[sequence];
  const std::int64_t skv = lengths.valid_kv[sequence];
  const auto blocks = [&](std::int64_t padded, std::int64_t valid, std::int64_t replicated) {
    return blocks_of(padded, replicated_tokens(replicated, valid), c.cp_size, most_blocks);
  };
  const Blocks queries = blocks(lengths.padded_q[sequence], sq, lengths.replicated_q);
  const Blocks keys = blocks(lengths.padded_kv[sequence], skv, lengths.replicated_kv);
  if (queries.positions.empty() || keys.positions.empty()) return {};
  CaseDrawing drawing{.q_per_block = queries.size,
                      .kv_per_block = keys.size,
                      .q_ranks = queries.ranks,
                      .kv_ranks = keys.ranks,
                      .q_begins = mapped(queries.positions, &Interval::begin)};
  const Mask mask = make_mask(c);
  for (const Interval& row : queries.positions) {
    std::string& drawn = drawing.rows.emplace_back();
    for (const Interval& column : keys.positions) drawn += block_of(mask, row, column, sq, skv);
  }
  return drawing;
}

}  // namespace cp_pool
