// Every deliberate fault of mutants.def must be caught by run_case on at least one of a fixed list of cases.
#include <random>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cp_core/mutation.h"
#include "cp_core/verify/test_support.h"

namespace cp_pool::verify {
namespace {

// Faults of what run_case skips (skip_reason): bias, sinks, max_logit, chunks, unequal lengths. No case reaches them.
const std::set<std::string_view> kNotReached{
    "a2a_bias_heads",         "a2a_dbias_not_reduced",    "a2a_sink_heads",
    "bias_columns_from_zero", "bias_of_first_sequence",   "bias_rows_from_zero",
    "bottom_right_reversed",  "bottom_right_is_top_left", "chunk_first_key",
    "chunk_ignored",          "chunk_last_key",           "chunk_query_boundary",
    "dbias_one_head",         "dbias_overwrites",         "dsink_not_reduced",
    "group_ignores_window",   "max_logit_from_zero",      "max_logit_of_own_queries",
    "sink_merged_twice",      "thd_dbias_not_reduced",    "tile_merge_diagonal"};

std::vector<Case> witness_cases() {
  std::vector<Case> cases;
  std::mt19937_64 generator(7);
  while (cases.size() < 120) {
    Case c = test::random_case(generator);
    c.training = true;
    if (c.cp_size > 1 && skip_reason(c).empty()) cases.push_back(c);
  }
  return cases;
}

TEST(Verification, CatchesEveryMutant) {
  const auto cases = witness_cases();
  for (const Case& c : cases) ASSERT_EQ(test::fault_of(test::run_on_threads(c)), "") << test::text_of(c);

  for (const MutantInfo& info : all_mutants()) {
    if (kNotReached.contains(info.name)) continue;
    const ScopedMutant on(info.mutant);
    std::string fault;
    std::size_t tried = 0;
    while (fault.empty() && tried < cases.size()) fault = test::fault_of(test::run_on_threads(cases[tried++]));
    EXPECT_NE(fault, "") << info.name << " survived " << tried << " cases: " << info.description;
    if (!fault.empty()) fmt::print("{:32} killed by case {:3}: {}\n", info.name, tried, fault);
  }
}

}  // namespace
}  // namespace cp_pool::verify
