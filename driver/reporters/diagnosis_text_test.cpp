#include "driver/reporters/diagnosis_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CauseLine, SaysHowSureItIs) {
  Diagnosis diagnosis = test::example_diagnosis();
  EXPECT_EQ(cause_line(diagnosis),
            "cause: the window's left edge is 63 instead of 64 on all ranks (explains out, dq within bounds)");
  diagnosis.certainty = Certainty::likely;
  diagnosis.explains.clear();
  EXPECT_EQ(cause_line(diagnosis), "cause (likely): the window's left edge is 63 instead of 64 on all ranks");
  diagnosis.others = {"no_mask", "whole_keys"};
  EXPECT_EQ(cause_line(diagnosis),
            "cause (likely): the window's left edge is 63 instead of 64 on all ranks; or: no_mask, whole_keys");
  diagnosis.certainty = Certainty::unknown;
  diagnosis.cause = "only dk is wrong";
  EXPECT_EQ(cause_line(diagnosis), "cause: unknown: only dk is wrong");
}

TEST(DiagnosisText, HasTheEvidenceUnderTheCause) {
  EXPECT_EQ(diagnosis_text(test::example_diagnosis()),
            "cause: the window's left edge is 63 instead of 64 on all ranks (explains out, dq within bounds)\n"
            "  rows 64 and later are wrong\n"
            "  queries 64..127 (rank 1) did not see keys 0..63 (rank 0)\n"
            "  in all 64 pairs of a query and a key are missing, 0 in excess\n");
  Diagnosis bare;
  bare.cause = "no known mistake fits";
  EXPECT_EQ(diagnosis_text(bare), "cause: unknown: no known mistake fits\n");
}

TEST(DiagnosisText, DrawsThePictureOfTheMaskIfItIsSmallOrWanted) {
  Diagnosis diagnosis = test::example_diagnosis();
  const std::string drawn = "    0 |. |\n";
  EXPECT_THAT(diagnosis_text(diagnosis), Not(HasSubstr(drawn)));
  EXPECT_THAT(diagnosis_text(diagnosis, DrawMask::small), HasSubstr(drawn));
  diagnosis.picture->rows.assign(41, ". ");
  EXPECT_THAT(diagnosis_text(diagnosis, DrawMask::small),
              AllOf(Not(HasSubstr(drawn)), HasSubstr("  a picture of the mask has 41 x 2 cells")));
  EXPECT_THAT(diagnosis_text(diagnosis, DrawMask::any), HasSubstr(drawn));
}

TEST(DiagnosisText, ShowsTheLargestRectanglesOfEachKind) {
  Diagnosis diagnosis = test::example_diagnosis();
  diagnosis.evidence.clear();
  diagnosis.pairs->missing.assign(9, {.text = "missing"});
  diagnosis.pairs->excess.assign(2, {.text = "excess"});
  diagnosis.pairs->missing_pairs = 1;
  diagnosis.pairs->excess_pairs = 20;
  EXPECT_EQ(diagnosis_text(diagnosis), cause_line(diagnosis) +
                                           "\n  missing\n  missing\n  missing\n  excess\n  excess\n"
                                           "  in all 1 pair of a query and a key are missing, 20 in excess\n");
}

}  // namespace
}  // namespace cp_pool
