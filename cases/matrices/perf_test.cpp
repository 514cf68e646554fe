// Tests that the matrix perf covers what its description promises.
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cases/lengths.h"
#include "cases/matrix.h"

namespace cp_pool {
namespace {

std::vector<MatrixCase> cases_of(const std::string& size) {
  return expand(std::vector{load_matrix(CP_POOL_MATRICES "/perf.json")}, size);
}

TEST(PerfMatrix, EveryThdCasePacksTheSequencesOfABshdCase) {
  for (const char* size : {"full", "small"}) {
    const auto cases = cases_of(size);
    EXPECT_EQ(cases.size(), 7U * 2 * 3);
    for (const MatrixCase& entry : cases) {
      const SequenceLengths lengths = resolve_lengths(entry.c);
      EXPECT_EQ(lengths.valid_q, std::vector<std::int64_t>(static_cast<std::size_t>(entry.c.batch), entry.c.seqlen_q))
          << entry.id;
      EXPECT_EQ(lengths.padded_q, lengths.valid_q) << entry.id;
    }
  }
}

TEST(PerfMatrix, PacksTheSameTokensIn1And4And8Sequences) {
  std::set<std::pair<std::int64_t, std::int64_t>> packs;  // tokens, sequences
  for (const MatrixCase& entry : cases_of("full")) {
    if (entry.c.heads == 32) packs.emplace(entry.c.batch * entry.c.seqlen_q, entry.c.batch);
  }
  EXPECT_EQ(packs, (std::set<std::pair<std::int64_t, std::int64_t>>{
                       {16384, 1}, {16384, 4}, {16384, 8}, {65536, 1}, {65536, 4}, {65536, 8}}));
}

TEST(PerfMatrix, IsCausalTrainingInBf16OnTwoRanksOfCudnn) {
  for (const MatrixCase& entry : cases_of("full")) {
    const Case& c = entry.c;
    EXPECT_TRUE(c.causal && c.training && c.dtype == DType::bf16 && c.cp_size == 2 && c.backend == Backend::cudnn &&
                c.head_dim_qk == 128 && c.head_dim_v == 128 && !c.deterministic)
        << entry.id;
  }
}

}  // namespace
}  // namespace cp_pool
