#include "driver/report/mask_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

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
