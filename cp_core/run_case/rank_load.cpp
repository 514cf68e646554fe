#include "cp_core/run_case/rank_load.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <variant>

#include <fmt/format.h>

#include "cases/comm_facts.h"
#include "cases/mask.h"
#include "cp_core/cuda/device.h"

namespace cp_pool {

namespace {

// How ranks form groups that split the heads among themselves.
struct HeadGroups {
  int size = 1;       // ranks of a group
  int count = 1;      // groups
  bool inner = true;  // a group has neighbouring ranks; else ranks that are `count` apart

  [[nodiscard]] int of_rank(int rank) const { return inner ? rank / size : rank % count; }
  [[nodiscard]] int place_of(int rank) const { return inner ? rank % size : rank / count; }
};

HeadGroups head_groups(const Case& c, const verify::Sharding& sharding, int ranks) {
  const auto* const convention = std::get_if<verify::Convention>(&sharding.rows);
  if (convention != nullptr && convention->kind == verify::ConventionKind::dual_chunk_ulysses) {
    return {.size = ranks / convention->ring, .count = convention->ring, .inner = convention->ulysses_inner};
  }
  const int size = facts_of(c.comm).head_ranks({.all = ranks, .inner = c.inner});
  return {.size = size, .count = ranks / size};
}

// The visible pairs of each query, or of each key, by sequence and position.
using Pairs = std::vector<std::vector<std::int64_t>>;

Pairs pairs_of_queries(const Case& c, const SequenceLengths& lengths) {
  const Mask mask = make_mask(c);
  Pairs pairs;
  for (std::size_t b = 0; b < lengths.valid_q.size(); ++b) {
    std::vector<std::int64_t>& of_sequence = pairs.emplace_back();
    for (std::int64_t i = 0; i < lengths.valid_q[b]; ++i) {
      of_sequence.push_back(
          count_visible(mask, i, {.begin = 0, .end = lengths.valid_kv[b]}, lengths.valid_q[b], lengths.valid_kv[b]));
    }
  }
  return pairs;
}

Pairs pairs_of_keys(const Case& c, const SequenceLengths& lengths) {
  const Mask mask = make_mask(c);
  Pairs pairs;
  for (std::size_t b = 0; b < lengths.valid_q.size(); ++b) {
    // First how many more queries see a key than see the key before it.
    std::vector<std::int64_t>& of_sequence = pairs.emplace_back(lengths.valid_kv[b] + 1, 0);
    for (std::int64_t i = 0; i < lengths.valid_q[b]; ++i) {
      for (const Interval& keys : visible_keys(mask, i, lengths.valid_q[b], lengths.valid_kv[b])) {
        ++of_sequence[static_cast<std::size_t>(keys.begin)];
        --of_sequence[static_cast<std::size_t>(keys.end)];
      }
    }
    std::inclusive_scan(of_sequence.begin(), of_sequence.end(), of_sequence.begin());
  }
  return pairs;
}

// Bytes per element of the whole problem's inputs and results. Every rank holds the whole inputs, and the expected
// results in fp64; its own shards are small compared with these.
constexpr double kBytesOfElement = 24;
// Bytes per element of a bias, whose gradient is assembled by rows.
constexpr double kBytesOfBias = 70;
// Bytes per score of a block of queries (query_blocks.cpp), of which the reference holds several copies.
constexpr double kBytesOfScore = 38;
constexpr double kMostScores = 1U << 27U;
constexpr double kRest = 512U << 20U;  // bytes, whatever the sizes

}  // namespace

std::vector<std::int64_t> pairs_by_rank(const Case& c, const SequenceLengths& lengths, const verify::Sharding& sharding,
                                        int ranks) {
  const HeadGroups groups = head_groups(c, sharding, ranks);
  const verify::Ownership owners = verify::ownership_of(sharding, c.layout, lengths, ranks);
  const verify::RowsByRank& rows = c.all_queries ? owners.kv : owners.q;
  const std::int64_t replicated = c.all_queries ? lengths.replicated_kv : lengths.replicated_q;
  const auto pairs_of = c.all_queries ? pairs_of_keys(c, lengths) : pairs_of_queries(c, lengths);
  std::vector<std::int64_t> of_groups(static_cast<std::size_t>(groups.count), 0);
  std::vector<bool> begun(static_cast<std::size_t>(groups.count), false);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto group = static_cast<std::size_t>(groups.of_rank(rank));
    for (const verify::LocalRow& row : rows[static_cast<std::size_t>(rank)]) {
      // The ranks of a group all hold the replicated rows, and together compute them once.
      if (row.canonical < 0 || (begun[group] && row.position < replicated)) continue;
      of_groups[group] += pairs_of[static_cast<std::size_t>(row.sequence)][static_cast<std::size_t>(row.position)];
    }
    begun[group] = true;
  }
  std::vector<std::int64_t> pairs;
  pairs.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    pairs.push_back(of_groups[static_cast<std::size_t>(groups.of_rank(rank))] *
                    head_share(c.heads, c.kv_heads, groups.size, groups.place_of(rank)).count);
  }
  return pairs;
}

std::size_t estimated_device_bytes(const verify::CanonicalProblem& problem, int ranks) {
  const auto dims = static_cast<double>(problem.head_dim_qk + problem.head_dim_v);
  const double elements = dims * (static_cast<double>(problem.tokens_q() * problem.heads) +
                                  static_cast<double>(problem.tokens_kv() * problem.kv_heads));
  double bias = 0;
  if (problem.bias) {
    bias = 1;
    for (const std::int64_t extent : bias_extents(problem)) bias *= static_cast<double>(extent);
  }
  double scores = 0;
  for (std::size_t b = 0; b < problem.seqlens_q.size(); ++b) {
    scores = std::max(scores, static_cast<double>(problem.seqlens_q[b]) * static_cast<double>(problem.seqlens_kv[b]));
  }
  const std::int64_t heads_of_share = (problem.heads + ranks - 1) / ranks;
  return static_cast<std::size_t>(kBytesOfElement * elements + kBytesOfBias * bias +
                                  kBytesOfScore * std::min(kMostScores, scores * static_cast<double>(heads_of_share)) +
                                  kRest);
}

std::string shortage_on_shared_gpu(const verify::CanonicalProblem& problem, Communicator& cp, const at::Device& device,
                                   int ranks_on_gpu, const std::function<void()>& forget) {
  constexpr std::int64_t kBarrierTag = -2;  // differs from the seq of every case
  const std::size_t need = estimated_device_bytes(problem, cp.size()) * static_cast<std::size_t>(ranks_on_gpu);
  std::size_t free = 0;
  const auto fits = [&] {
    // This call and the one below are collective, so all ranks have released their cached memory before any looks, and
    // no rank allocates before all have looked.
    (void)anywhere(false, cp, device, "memory of ranks that share a GPU");
    free = cuda_device().memory().free_bytes;
    return !anywhere(need > free, cp, device, "whether the case fits");
  };
  if (fits()) return {};
  forget();
  cp.checked_barrier(kBarrierTag, std::chrono::seconds(10));  // lets ranks close each other's memory
  cuda_device().release_cached_memory();
  if (fits()) return {};
  if (need <= free) return "the ranks of another GPU need more memory than is free there";
  constexpr double kGiB = 1U << 30U;
  return fmt::format("{} ranks that share a GPU need about {:.1f} GiB of it together, and {:.1f} GiB are free",
                     ranks_on_gpu, static_cast<double>(need) / kGiB, static_cast<double>(free) / kGiB);
}

}  // namespace cp_pool
