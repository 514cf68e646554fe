// Every deliberate fault of mutants.def that CPU ranks can have must be caught by run_case on at least one case of a
// fixed list. The check that caught each mutant is recorded in test properties, which tools/mutants prints as a table.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cp_core/mutation.h"
#include "cp_core/testing/cases_on_threads.h"
#include "cp_core/testing/witness_cases.h"

namespace cp_pool::verify {
namespace {

constexpr std::size_t kCasesOfWindows = 20;

struct Kill {
  std::size_t after = 0;  // number of cases tried, including the one that killed the mutant
  std::string check;      // name of the failed check
  std::string message;
};

std::optional<Kill> kill(std::span<const Case> cases, bool windows = false) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (const RankReport& report : test::run_on_threads(cases[i], windows)) {
      const auto failed = std::ranges::find(report.checks, false, &Check::ok);
      if (failed != report.checks.end()) return Kill{i + 1, failed->tensor, failed->message};
    }
  }
  return std::nullopt;
}

TEST(Verification, CatchesEveryMutant) {
  const auto cases = test::witness_cases();
  for (const Case& c : cases) ASSERT_EQ(test::fault_of(test::run_on_threads(c)), "") << test::text_of(c);

  for (const MutantInfo& info : all_mutants()) {
    if (info.where == MutantWhere::gpu) continue;
    const ScopedMutant on(info.mutant);
    const auto killed = kill(cases);
    EXPECT_TRUE(killed) << info.name << " survived " << cases.size() << " cases: " << info.description;
    RecordProperty(std::string(info.name),
                   killed ? fmt::format("{} {}: {}", killed->after, killed->check, killed->message) : "survived");
  }
}

// What a step keeps from an earlier one shows in the repetition, whose inputs are negated; what does not change sign
// with them shows in the next case of the same shape.
TEST(Verification, SeesStateOfAnEarlierCall) {
  std::vector<Case> twins = test::twin_cases();
  for (Case& twin : twins) twin.heads = twin.kv_heads = 11;  // as no other case of this process has
  for (const auto& [mutant, check, after] : {std::tuple{Mutant::kept_out, "repeat", 1U},
                                             {Mutant::kept_dq, "repeat", 1U},
                                             {Mutant::kept_dk, "repeat", 1U},
                                             {Mutant::kept_dv, "repeat", 1U},
                                             {Mutant::kept_lse, "lse", 2U},
                                             {Mutant::kept_max_logit, "max_logit", 2U},
                                             {Mutant::kept_dbias, "dbias", 2U},
                                             {Mutant::kept_dsink, "dsink", 2U}}) {
    const ScopedMutant on(mutant);
    const auto killed = kill(twins);
    ASSERT_TRUE(killed) << check;
    EXPECT_EQ(killed->check, check);
    EXPECT_EQ(killed->after, after) << check << ": " << killed->message;
    EXPECT_EQ(killed->message.starts_with("state of an earlier step: "), after == 1) << killed->message;
  }
}

// With a single group, the ranks of the group are always consecutive.
TEST(Verification, NeedsSeveralGroupsToSeeThatTheirRanksAreNotConsecutive) {
  for (const CommType comm : kValues<CommType>) {
    Case c = test::small_case();
    c.comm = comm;
    c.cp_size = 4;
    c.heads = c.kv_heads = 4;
    Case two = c;
    two.group = 2;
    EXPECT_EQ(test::fault_of(test::run_on_threads(two)), "");
    const ScopedMutant on(Mutant::group_ranks_consecutive);
    EXPECT_EQ(test::fault_of(test::run_on_threads(c)), "");
    EXPECT_NE(test::fault_of(test::run_on_threads(two)), "");
  }
}

// Scores are symmetric about 0 without an offset, so some score of nearly every row is far above any number that stands
// for minus infinity.
TEST(Verification, NeedsLowScoresToSeeWhereTheRunningMaximumStarts) {
  struct Start {
    Mutant mutant;
    std::vector<double> seen_at;
    std::vector<double> unseen_at;
  };
  for (const Start& start : {Start{Mutant::softmax_max_from_0, {-100, -20'000, -65'536}, {0, 100}},
                             Start{Mutant::softmax_max_from_minus_1e4, {-20'000, -65'536}, {0, -100, 65'536}},
                             Start{Mutant::softmax_max_from_minus_5e4, {-65'536}, {0, -100, -20'000, 65'536}}}) {
    const auto failed = [](double offset, DType dtype, CommType comm) {
      Case c = test::low_case();
      c.score_offset = offset;
      c.training = std::abs(offset) <= 100;
      c.dtype = dtype;
      c.comm = comm;
      return kill({&c, 1});
    };
    for (const CommType comm : {CommType::p2p, CommType::all_gather, CommType::a2a}) {
      for (const DType dtype : kValues<DType>) {
        SCOPED_TRACE(fmt::format("{} {}", to_string(comm), to_string(dtype)));
        for (const double offset : start.seen_at) {
          if (dtype != DType::fp32 && std::abs(offset) > 100) continue;
          EXPECT_FALSE(failed(offset, dtype, comm)) << offset;
          const ScopedMutant on(start.mutant);
          const auto killed = failed(offset, dtype, comm);
          ASSERT_TRUE(killed) << offset;
          EXPECT_TRUE(killed->check == "out" || killed->check == "lse") << killed->check << " at " << offset;
        }
        for (const double offset : start.unseen_at) {
          if (dtype != DType::fp32 && std::abs(offset) > 100) continue;
          const ScopedMutant on(start.mutant);
          EXPECT_FALSE(failed(offset, dtype, comm)) << offset;
        }
      }
    }
  }
}

// The mutants whose seams are in other code if ranks write into each other's memory.
TEST(Verification, CatchesTheMutantsOfWindows) {
  std::vector<Case> cases = test::witness_cases();
  std::erase_if(cases, [](const Case& c) { return c.comm == CommType::p2p; });
  cases.resize(kCasesOfWindows);
  for (const Case& c : cases) ASSERT_EQ(test::fault_of(test::run_on_threads(c, true)), "") << test::text_of(c);
  for (const Mutant mutant :
       {Mutant::gathered_rows_not_reordered, Mutant::all_gather_wait_skipped, Mutant::reduce_scatter_slice,
        Mutant::all_gather_dkv_wait_skipped, Mutant::later_calls_dropped, Mutant::a2a_head_order,
        Mutant::a2a_heads_interleaved, Mutant::a2a_rows_not_reordered, Mutant::a2a_wait_skipped}) {
    const ScopedMutant on(mutant);
    const MutantInfo& info = *std::ranges::find(all_mutants(), mutant, &MutantInfo::mutant);
    EXPECT_TRUE(kill(cases, true)) << info.name << " survived " << cases.size() << " cases: " << info.description;
  }
}

}  // namespace
}  // namespace cp_pool::verify
