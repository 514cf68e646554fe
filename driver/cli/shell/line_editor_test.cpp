#include "driver/cli/shell/line_editor.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

TEST(CommonBeginning, IsWhatAllCandidatesShare) {
  EXPECT_EQ(common_beginning({}), "");
  EXPECT_EQ(common_beginning({{"te-flash/", ""}}), "te-flash/");
  EXPECT_EQ(common_beginning({{"te-flash/", ""}, {"te-fused/", ""}}), "te-f");
  EXPECT_EQ(common_beginning({{"set", ""}, {"again", ""}}), "");
}

TEST(CandidateColumns, FillTheTerminalColumnByColumn) {
  EXPECT_EQ(candidate_columns({{"a", ""}, {"bbb", ""}, {"cc", ""}}, 10), "a    cc\nbbb\n");
  EXPECT_EQ(candidate_columns({{"a", ""}, {"bbb", ""}, {"cc", ""}}, 2), "a\nbbb\ncc\n") << "narrower than a word";
}

TEST(CandidateColumns, LeaveOutWhatAllHaveBeforeTheirLastPart) {
  EXPECT_EQ(candidate_columns({{"te-flash/cp_1/", ""}, {"te-flash/cp_2/", ""}}, 80), "cp_1/  cp_2/\n");
}

}  // namespace
}  // namespace cp_pool
