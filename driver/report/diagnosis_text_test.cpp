#include "driver/report/diagnosis_text.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

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
  diagnosis.evidence = {"or: no mask is applied", "or: every query sees all keys"};
  EXPECT_EQ(cause_line(diagnosis), "cause (likely): the window's left edge is 63 instead of 64 on all ranks");
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

TEST(DiagnosisText, DrawsThePictureOfTheMaskIfItIsWanted) {
  const Diagnosis diagnosis = test::example_diagnosis();
  const std::string drawn = "    0 |. |\n    1 |-.|\n";
  EXPECT_THAT(diagnosis_text(diagnosis), Not(HasSubstr("|. |")));
  EXPECT_THAT(diagnosis_text(diagnosis, DrawMask::coarse), HasSubstr(drawn));
  EXPECT_THAT(diagnosis_text(diagnosis, DrawMask::whole), HasSubstr(drawn));
}

// 64 rows are too many, so two rows and two columns become one.
TEST(DiagnosisText, DrawsALargePictureOfTheMaskMoreCoarsely) {
  Diagnosis diagnosis = test::example_diagnosis();
  MaskPicture& picture = *diagnosis.picture;
  picture.rows.assign(64, ". -+ ");
  picture.rows[2] = "    ?";
  picture.rows[3] = " -..+";
  picture.q_borders = {1, 5, 7};
  picture.kv_borders = {4};
  picture.q_ranks.assign(64, 0);
  picture.q_ranks[2] = 1;
  picture.kv_ranks = {0, 0, 1, 1, 2};
  const std::string coarse = diagnosis_text(diagnosis, DrawMask::coarse);
  EXPECT_THAT(coarse, HasSubstr("       01 2\n"));
  EXPECT_THAT(coarse,
              HasSubstr("    0 |.!| |\n    * |-.|?|\n      +--+-+\n    0 |.!| |\n      +--+-+\n    0 |.!| |\n"));
  EXPECT_THAT(coarse, HasSubstr("with their ranks (*: several); a cell is 128 queries x 128 keys"));
  EXPECT_EQ(std::ranges::count(coarse, '\n'), std::ranges::count(diagnosis_text(diagnosis), '\n') + 1 + 2 + 2 + 32 + 2);
  EXPECT_THAT(diagnosis_text(diagnosis, DrawMask::whole), HasSubstr("    0 |. -+| |\n"));
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

TEST(MaskText, ShowsCellsRanksAndBorders) {
  MaskPicture picture;
  picture.q_per_cell = 1;
  picture.kv_per_cell = 4;
  picture.rows = {".-  ", ".. +"};
  picture.q_borders = {1};
  picture.kv_borders = {2};
  picture.q_ranks = {0, 11};
  picture.kv_ranks = {0, 1, 0, -1};
  EXPECT_EQ(mask_text(picture),
            "     01 0 \n"
            "    +--+--+\n"
            "  0 |.-|  |\n"
            "    +--+--+\n"
            "  b |..| +|\n"
            "    +--+--+\n"
            "  queries downwards, keys to the right, with their ranks; a cell is 1 query x 4 keys\n"
            "  . as it should be; - keys not seen; + keys seen that should not be, or twice\n");
}

TEST(MaskText, MarksCellsOfSeveralRanks) {
  MaskPicture picture;
  picture.rows = {".."};
  picture.q_ranks = {0};
  picture.kv_ranks = {0, 1};
  picture.kv_owners = {{0, 1}, {1}};
  EXPECT_THAT(mask_text(picture), testing::AllOf(testing::StartsWith("     *1\n"),
                                                 testing::HasSubstr("with their ranks (*: several); a cell")));
}

TEST(MaskText, ExplainsOnlyWhatOccurs) {
  MaskPicture picture;
  picture.rows = {"!?"};
  EXPECT_THAT(mask_text(picture), testing::EndsWith("  ! both; ? weights that are no whole numbers, or unknown\n"));
}

TEST(MaskText, HasACharacterForEachRankOfACase) {
  MaskPicture picture;
  picture.rows = {".."};
  picture.q_ranks = {63};
  picture.kv_ranks = {62, 63};
  EXPECT_THAT(mask_text(picture), testing::StartsWith("     @&\n"
                                                      "    +--+\n"
                                                      "  & |..|\n"));
}

// A foreign worker may send such a picture.
TEST(MaskText, TakesRowsOfUnequalLengthAndMissingRanks) {
  MaskPicture picture;
  picture.rows = {".", "..."};
  picture.kv_borders = {7, -1};
  EXPECT_THAT(mask_text(picture), testing::StartsWith("        \n"
                                                      "    +---+\n"
                                                      "    |.  |\n"
                                                      "    |...|\n"
                                                      "    +---+\n"));
  EXPECT_EQ(mask_text({}), "");
}

}  // namespace

}  // namespace cp_pool
