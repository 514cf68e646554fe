#include <gmock/gmock.h>

#include "driver/report/case_text.h"

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

}  // namespace
}  // namespace cp_pool
