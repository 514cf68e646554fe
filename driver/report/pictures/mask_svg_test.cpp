#include "driver/report/pictures/pictures.h"
#include "driver/report/testing/parsed_page.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

ParsedPage case_mask_page(const CaseDrawing& drawing, int tiles) {
  return page_with([&](pugi::xml_node body) { append_case_mask(body, drawing, tiles, "Sequence 0", "m"); });
}

CaseDrawing causal_drawing() {
  return {.q_per_block = 2,
          .kv_per_block = 4,
          .rows = {"+.. ", "#+. ", "##+ ", "    "},
          .q_ranks = {0, 1, 1, 0},
          .kv_ranks = {0, 1, 1, 0},
          .q_begins = {0, 2, 4, 6}};
}

TEST(CaseMaskSvg, HasTheColourOfTheRankThatOwnsTheQueries) {
  const ParsedPage page = case_mask_page(causal_drawing(), 4);
  expect_readable(page);
  EXPECT_EQ(page.one("//g/path[@class='r1']/@d"), "M0 1H1V2H0zM0 2H2V3H0z");
  EXPECT_EQ(page.one("//g/path[@class='r0 partly']/@d"), "M0 0H1V1H0z");
  EXPECT_EQ(page.one("//g/path[@fill='url(#m-cell-32)']/@d"), "M3 0H4V1H3zM3 1H4V2H3zM3 2H4V3H3zM0 3H4V4H0z");
  EXPECT_THAT(page.one("//desc"),
              AllOf(HasSubstr("blocks of 2 queries x 4 keys"), HasSubstr("In 3 blocks"), HasSubstr("in 3 some")));
}

TEST(CaseMaskSvg, DrawsWhereTilesMeet) {
  EXPECT_EQ(case_mask_page(causal_drawing(), 2).one("//g/path[@class='edge']/@d"),
            "M0 0H4M0 0V4M0 2H4M2 0V4M0 4H4M4 0V4");
}

TEST(CaseMaskSvg, ThereIsNoneWithoutBlocks) {
  EXPECT_THAT(case_mask_page({}, 4).all("//figure"), IsEmpty());
}

}  // namespace
}  // namespace cp_pool::test
