#include "driver/log/counted_runs.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

const CaseKey kA{.id = "a", .size = "small", .device = "cpu", .implementation = "own", .case_text = "{}"};

TEST(CountedRuns, TheLastRunOfACaseCounts) {
  CountedRuns runs;
  for (const std::size_t run : {0U, 3U, 1U}) runs.add(kA, run, true);
  runs.close();
  EXPECT_EQ(runs.counted(kA), 3U);
  EXPECT_EQ(runs.first(kA), 0U);
}

TEST(CountedRuns, CasesAreTheSameInAllThatMakesThemSo) {
  CountedRuns runs;
  std::vector<CaseKey> keys{kA, kA, kA, kA, kA};
  keys[1].id = "b";
  keys[2].size = "full";
  keys[3].device = "cuda";
  keys[4].case_text = "{\"heads\":4}";
  for (std::size_t run = 0; run < keys.size(); ++run) runs.add(keys[run], run, true);
  runs.close();
  for (std::size_t run = 0; run < keys.size(); ++run) EXPECT_EQ(runs.counted(keys[run]), run);
}

TEST(CountedRuns, ARunThatDidNotComeToTheCaseCountsWhereNoneDid) {
  CountedRuns runs;
  runs.add(kA, 0, true);
  runs.add(kA, 1, false);
  CaseKey other = kA;
  other.id = "b";
  runs.add(other, 0, false);
  runs.add(other, 1, false);
  runs.close();
  EXPECT_EQ(runs.counted(kA), 0U);
  EXPECT_EQ(runs.counted(other), 1U);
}

TEST(CountedRuns, ACaseOfWhichOnlyTheNamesAreKnownIsThatOfTheOtherRun) {
  CountedRuns runs;
  CaseKey unknown = kA;
  unknown.case_text.clear();
  runs.add(unknown, 0, false);
  runs.add(kA, 1, true);
  CaseKey alone = unknown;
  alone.id = "alone";
  runs.add(alone, 2, false);
  runs.close();
  EXPECT_EQ(runs.counted(unknown), 1U);
  EXPECT_EQ(runs.counted(kA), 1U);
  EXPECT_EQ(runs.first(kA), 0U);
  EXPECT_EQ(runs.counted(alone), 2U);
}

}  // namespace
}  // namespace cp_pool
