// Tests that the matrix chunked covers what its description promises.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cases/lengths.h"
#include "cases/matrix.h"

namespace cp_pool {
namespace {

std::vector<MatrixCase> chunked() {
  return expand(std::vector{load_matrix(CP_POOL_MATRICES "/chunked.json")}, "small");
}

std::string mask_of(const Case& c) {
  if (c.window[0] >= 0) return c.causal ? "window left" : "window both";
  return c.causal ? "causal" : "none";
}

// Compares the chunk with the length of one of the 2n pieces into which n ranks split the longest sequence.
std::string relation_of(const Case& c) {
  const std::int64_t piece = std::ranges::max(resolve_lengths(c).padded_kv) / (std::int64_t{2} * c.cp_size);
  if (c.chunk == piece) return "equal";
  if (c.chunk < piece) return piece % c.chunk == 0 ? "divides" : "smaller";
  return c.chunk % piece == 0 ? "multiple" : "larger";
}

std::string layout_of(const Case& c) {
  return fmt::format("{}{}", to_string(c.layout), c.pad_between_seqs ? " padded" : "");
}

TEST(Chunked, HasAtLeast150SmallCasesThatAreAllChunked) {
  const auto cases = chunked();
  EXPECT_GE(cases.size(), 150U);
  for (const MatrixCase& entry : cases) {
    EXPECT_GT(entry.c.chunk, 0) << entry.id;
    EXPECT_TRUE(entry.c.training) << entry.id;
    EXPECT_LE(std::max(entry.c.seqlen_q, entry.c.seqlen_kv), 64) << entry.id;
  }
}

TEST(Chunked, MeetsEveryMaskRelationCommAndWorldSizeTogether) {
  std::set<std::string> met;
  for (const MatrixCase& entry : chunked()) {
    const Case& c = entry.c;
    met.insert(fmt::format("{}, {}, {} {}", mask_of(c), relation_of(c), to_string(c.comm), c.cp_size));
  }
  for (const std::string_view mask : {"causal", "none", "window left", "window both"}) {
    for (const std::string_view relation : {"divides", "smaller", "equal", "multiple", "larger"}) {
      for (const std::string_view comm : {"p2p 1", "p2p 2", "p2p 4", "all_gather 1", "all_gather 2", "all_gather 4",
                                          "a2a 1", "a2a 2", "a2a 4", "a2a+p2p 4"}) {
        const std::string wanted = fmt::format("{}, {}, {}", mask, relation, comm);
        EXPECT_TRUE(met.contains(wanted)) << wanted;
      }
    }
  }
}

TEST(Chunked, MeetsEveryPairWithLayoutAndDtype) {
  std::set<std::string> met;
  for (const MatrixCase& entry : chunked()) {
    const Case& c = entry.c;
    const std::vector<std::string> others{mask_of(c), relation_of(c), fmt::format("{}", to_string(c.comm)),
                                          fmt::format("cp{}", c.cp_size)};
    for (const std::string& other : others) {
      met.insert(fmt::format("{} {}", layout_of(c), other));
      met.insert(fmt::format("{} {}", to_string(c.dtype), other));
    }
    met.insert(fmt::format("{} {}", layout_of(c), to_string(c.dtype)));
  }
  const auto expect_met = [&met](std::string_view a, std::string_view b) {
    EXPECT_TRUE(met.contains(fmt::format("{} {}", a, b))) << a << " never meets " << b;
  };
  const std::vector<std::string> layouts{"bshd", "sbhd", "thd", "thd padded"};
  const std::vector<std::string> dtypes{"fp32", "bf16", "fp16"};
  for (const char* other : {"causal", "none", "window left", "window both", "divides", "smaller", "equal", "multiple",
                            "larger", "p2p", "all_gather", "a2a", "a2a+p2p", "cp1", "cp2", "cp4"}) {
    for (const std::string& layout : layouts) expect_met(layout, other);
    for (const std::string& dtype : dtypes) expect_met(dtype, other);
  }
  for (const std::string& layout : layouts) {
    for (const std::string& dtype : dtypes) expect_met(layout, dtype);
  }
}

TEST(Chunked, HasUnequalLengthsBothWays) {
  const auto cases = chunked();
  const auto any = [&](auto predicate) {
    return std::ranges::any_of(cases, [&](const MatrixCase& entry) { return predicate(entry.c); });
  };
  EXPECT_TRUE(any([](const Case& c) { return c.seqlen_q < c.seqlen_kv; }));
  EXPECT_TRUE(any([](const Case& c) { return c.seqlen_q > c.seqlen_kv; }));
  EXPECT_TRUE(any([](const Case& c) { return c.layout == Layout::thd && c.seqlens_kv; }));
}

}  // namespace
}  // namespace cp_pool
