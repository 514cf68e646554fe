#include "cp_core/run_case/memory_need.h"

#include <algorithm>
#include <cstdint>

namespace cp_pool::verify {
namespace {

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

std::size_t estimated_device_bytes(const CanonicalProblem& problem, int ranks) {
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

}  // namespace cp_pool::verify
