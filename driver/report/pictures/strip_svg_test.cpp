#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/report/pictures/pictures.h"
#include "driver/report/testing/parsed_page.h"

namespace cp_pool::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ParsedPage strips_page(const std::vector<ErrorStrip>& strips) {
  return page_with([&](pugi::xml_node body) { append_strips(body, strips, "s"); });
}

ErrorStrip strip_of(std::vector<double> by_row, std::vector<double> by_head = {}) {
  return {.tensor = "dq",
          .rank = 1,
          .rows_per_cell = 16,
          .by_row = std::move(by_row),
          .borders = {2},
          .by_head = std::move(by_head)};
}

TEST(StripSvg, HasAStripForRowsAndOneForHeadsAndATableOfTheWorst) {
  const ParsedPage page = strips_page({strip_of({0.1, 0.2, 5, 30}, {0.5, 30})});
  expect_readable(page);
  EXPECT_THAT(page.all("//svg/title"),
              ElementsAre("dq rank 1 by rows: largest error / bound 30 at rows 48 to 63; 2 of 4 cells beyond the bound",
                          "dq rank 1 by heads: 1 of 2 heads beyond the bound"));
  EXPECT_THAT(page.all("//tr[2]/td"), ElementsAre("dq", "1", "30", "rows 48 to 63", "2 of 4", "1", "1 of 2"));
  EXPECT_THAT(page.one("//figcaption"), HasSubstr("from 0.01 to 100"));
}

TEST(StripSvg, BarsAreHighByTheLogarithmAndHaveAColourByHowFarTheyAreBeyond) {
  const ParsedPage page = strips_page({strip_of({0.1, 1, 10, 100, 0.001})});
  // 36 units for four decades are 9 each, with the bound at 18.
  EXPECT_EQ(page.one("//svg[1]/path[@class='fill-calm']/@d"), "M0 36V27H1V36zM1 36V18H2V36z");
  EXPECT_EQ(page.one("//svg[1]/path[@class='fill-warm']/@d"), "M2 36V9H3V36z");
  EXPECT_EQ(page.one("//svg[1]/path[@class='fill-bad']/@d"), "M3 36V0H4V36z");
  EXPECT_EQ(page.one("//svg[1]/path[@class='edge dashed']/@d"), "M0 18H5") << "the bound";
  EXPECT_EQ(page.one("//svg[1]/path[@class='thin']/@d"), "M2 0V36") << "a border";
}

TEST(StripSvg, WhatIsJustBeyondItsBoundIsAboveTheLine) {
  const ParsedPage page = strips_page({strip_of({1.001, 0.999})});
  EXPECT_EQ(page.one("//svg[1]/path[@class='edge dashed']/@d"), "M0 12H2");
  EXPECT_EQ(page.one("//svg[1]/path[@class='fill-warm']/@d"), "M0 36V11H1V36z");
  EXPECT_EQ(page.one("//svg[1]/path[@class='fill-calm']/@d"), "M1 36V12H2V36z");
}

TEST(StripSvg, ARowWithoutABoundIsOffTheScaleAndLeavesItAsItIs) {
  const ParsedPage page = strips_page({strip_of({2, ErrorStrip::kOffTheScale, 0})});
  EXPECT_EQ(page.one("//svg[1]/path[@class='fill-ink']/@d"), "M1 36V0H2V36z");
  EXPECT_THAT(page.one("//figcaption"), HasSubstr("from 0.01 to 10;"));
  EXPECT_EQ(page.one("//tr[2]/td[3]"), "no bound, and wrong");
}

TEST(StripSvg, AllStripsHaveOneScale) {
  const ParsedPage page = strips_page({strip_of({10}), strip_of({1000})});
  EXPECT_THAT(page.all("//svg/path[@class='edge dashed']/@d"), ElementsAre("M0 22H1", "M0 22H1"));
}

TEST(StripSvg, ALongStripShowsTheLargestOfNeighbours) {
  std::vector<double> rows(1024, 0.5);
  rows[1001] = 7;
  const ParsedPage page = strips_page({strip_of(rows)});
  EXPECT_EQ(page.one("//svg[1]/@viewBox"), "0 0 512 36");
  EXPECT_THAT(page.one("//svg[1]/path[@class='fill-warm']/@d"), ::testing::StartsWith("M500 36"));
  EXPECT_EQ(page.one("//svg[1]/path[@class='thin']/@d"), "M1 0V36");
}

TEST(StripSvg, ThereIsNoneWithoutStrips) {
  EXPECT_THAT(strips_page({}).all("//figure"), IsEmpty());
}

}  // namespace
}  // namespace cp_pool::test
