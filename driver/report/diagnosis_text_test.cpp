#include "driver/report/diagnosis_text.h"

#include <gmock/gmock.h>

namespace cp_pool {
namespace {

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
