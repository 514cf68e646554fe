// Every deliberate fault of mutants.def that CPU ranks can have must be caught by run_case on at least one case of a
// fixed list. The check that caught each mutant is recorded in test properties, which tools/mutants prints as a table.
#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cases/case_names.h"
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
