#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/report/pictures/pictures.h"
#include "driver/report/testing/parsed_page.h"

namespace cp_pool::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ParsedPage mask_page(const MaskPicture& picture) {
  return page_with([&](pugi::xml_node body) { append_mask(body, picture, "m"); });
}

// A causal mask of two ranks: row 1 sees a key too many, row 3 one too few.
MaskPicture causal_mask() {
  return {.q_per_cell = 16,
          .kv_per_cell = 8,
          .rows = {".   ", ".+  ", "... ", ".-.!"},
          .q_borders = {},
          .kv_borders = {},
          .q_ranks = {0, 1, 1, 0},
          .kv_ranks = {0, 1, 1, 0}};
}

TEST(MaskSvg, SaysInWordsWhatItShows) {
  const ParsedPage page = mask_page(causal_mask());
  expect_readable(page);
  EXPECT_THAT(page.one("//figcaption"), HasSubstr("A cell is 16 queries x 8 keys of the padded sequences"));
  EXPECT_THAT(page.one("//desc"), AllOf(HasSubstr("4 rows of cells downwards, 4 columns to the right"),
                                        HasSubstr("7 cells seen as expected"), HasSubstr("1 cell missing"),
                                        HasSubstr("1 cell excess"), HasSubstr("1 cell both")));
  EXPECT_THAT(page.all("//svg/text[contains(., 'cell')]"),
              ElementsAre("seen as expected (7 cells)", "missing: expected, and not seen (1 cell)",
                          "excess: seen, and not expected, or seen twice (1 cell)",
                          "both: some missing, some in excess (1 cell)"));
  EXPECT_THAT(page.all("//text[contains(., 'whole numbers')]"), IsEmpty()) << "there are none";
}

TEST(MaskSvg, DrawsRunsOfEachKindWhereTheyAre) {
  const ParsedPage page = mask_page(causal_mask());
  EXPECT_EQ(page.one("//g/path[@class='fill-calm']/@d"), "M0 0H1V1H0zM0 1H1V2H0zM0 2H3V3H0zM0 3H1V4H0zM2 3H3V4H2z");
  // Missing keys differ by their texture, so that they can be told apart in a black and white print, too.
  EXPECT_EQ(page.one("//g/path[@fill='url(#m-cell-45)']/@d"), "M1 3H2V4H1z");
  EXPECT_THAT(page.all("//pattern/@id"), ::testing::Contains("m-cell-45"));
}

TEST(MaskSvg, OutlinesWhatWasExpected) {
  MaskPicture picture = causal_mask();
  picture.rows = {"-+", ".-"};
  picture.q_ranks = picture.kv_ranks = {0, 1};
  const ParsedPage page = mask_page(picture);
  EXPECT_EQ(page.one("//g/path[@class='edge']/@d"), "M0 0H1M1 1H2M0 2H2M0 0V2M1 0V1M2 1V2");
}

TEST(MaskSvg, NamesTheOwnersAlongBothAxes) {
  const ParsedPage page = mask_page(causal_mask());
  EXPECT_THAT(page.all("//rect[contains(@class, 'r0') or contains(@class, 'r1')]/title"),
              ElementsAre("rank 0", "rank 1", "rank 0", "rank 0", "rank 1", "rank 0"));
  EXPECT_THAT(page.all("//text[@class='small middle']"), ElementsAre("0", "1", "0", "0", "1", "0"));
}

TEST(MaskSvg, NamesAllOwnersOfACell) {
  MaskPicture picture = causal_mask();
  picture.q_owners = {{0}, {1, 2}, {1, 2}, {0}};
  picture.kv_owners = {{0, 1, 2, 5}, {0, 1, 2, 5}, {0, 1, 2, 5}, {0, 1, 2, 5}};
  const ParsedPage page = mask_page(picture);
  EXPECT_THAT(page.all("//rect[contains(@class, 'bordered')]/title"),
              ElementsAre("ranks 0-2, 5", "rank 0", "ranks 1, 2", "rank 0"));
  EXPECT_THAT(page.all("//text[contains(@class, 'small middle')]"), ElementsAre("0-2, 5", "0", "1, 2", "0"));
}

TEST(MaskSvg, DrawsBordersOfSequences) {
  MaskPicture picture = causal_mask();
  EXPECT_THAT(mask_page(picture).text, Not(HasSubstr("another sequence begins")));
  picture.q_borders = {2};
  picture.kv_borders = {2};
  const ParsedPage page = mask_page(picture);
  EXPECT_EQ(page.one("//g/path[@class='edge dashed']/@d"), "M0 2H4M2 0V4");
  EXPECT_THAT(page.text, HasSubstr("another sequence begins"));
}

TEST(MaskSvg, SaysWhereWeightsAreNoWholeNumbers) {
  MaskPicture picture = causal_mask();
  picture.rows[0] =
      ".?"
      "?-";
  EXPECT_THAT(mask_page(picture).one("//desc"), HasSubstr("2 cells weights that are no whole numbers, or unknown"));
}

}  // namespace
}  // namespace cp_pool::test
