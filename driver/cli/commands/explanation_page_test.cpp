#include "driver/cli/commands/explanation.h"
#include "driver/report/reports.h"
#include "driver/report/testing/parsed_page.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

ParsedPage explained(const Case& c) {
  ParsedPage page(explanation_page("the/<id>", c));
  expect_readable(page);
  return page;
}

TEST(ExplanationPage, HasTheDrawingsAndAllThatTheTextSays) {
  Case c = example_case();
  c.causal = true;
  const ParsedPage page = explained(c);
  EXPECT_THAT(page.text, StartsWith(std::string{kExplanationStart}));
  EXPECT_THAT(page.text, Not(StartsWith(std::string{kHtmlStart}))) << "a report does not replace it";
  EXPECT_EQ(page.one("//h1"), "the/<id>");
  EXPECT_THAT(page.all("//h2"), ElementsAre("Mask, owners and tiles", "Exchanges", "Compute", "As text"));
  EXPECT_THAT(page.all("//svg[@id='mask-0']"), SizeIs(1)) << "both sequences are as long";
  EXPECT_THAT(page.one("//figure[svg/@id='mask-0']/figcaption"),
              "Sequences 0, 1: queries 128 of 128, keys 128 of 128 (valid of padded)");
  EXPECT_EQ(page.one("//pre[@class='wide']"), explain_case("the/<id>", c));
  EXPECT_THAT(page.all("//tr[td[1]='1']/td"),
              ElementsAre("1", "6 full, 4 banded, 6 empty", "8256", "4", "8.45 MFLOP", "21.14 MFLOP",
                          "4 full, 0 banded, 4 empty", "2 full, 4 banded, 2 empty"));
}

TEST(ExplanationPage, HasTheExchangesOfEachTypeByPass) {
  Case c = example_case();
  c.cp_size = 4;
  c.heads = c.kv_heads = 4;
  for (const CommType comm : kValues<CommType>) {
    SCOPED_TRACE(to_string(comm));
    c.comm = comm;
    const ParsedPage page = explained(c);
    EXPECT_THAT(page.all("//h3"), ElementsAre("Forward", "Backward"));
    EXPECT_GE(page.all("//svg[starts-with(@id, 'exchange-')]").size(), 3U);
    c.training = false;
    EXPECT_THAT(explained(c).all("//h3"), ElementsAre("Forward"));
    c.training = true;
  }
}

TEST(ExplanationPage, OneRankSendsNothing) {
  Case c = example_case();
  c.cp_size = 1;
  const ParsedPage page = explained(c);
  EXPECT_THAT(page.all("//h3"), IsEmpty());
  EXPECT_THAT(page.text, HasSubstr("One rank sends nothing."));
}

TEST(ExplanationPage, OfManyLengthsTheFirstAreDrawn) {
  Case c = example_case();
  c.layout = Layout::thd;
  c.batch = 9;
  c.seqlens = std::vector<std::int64_t>{4, 8, 12, 16, 20, 24, 28, 32, 4};
  const ParsedPage page = explained(c);
  EXPECT_THAT(page.all("//svg[starts-with(@id, 'mask-')]"), SizeIs(6));
  EXPECT_THAT(page.text, HasSubstr("2 more lengths are not drawn."));
}

TEST(ExplanationPage, HasRoomForTheMostRanks) {
  Case c = example_case();
  c.cp_size = 64;
  const ParsedPage page = explained(c);
  EXPECT_THAT(page.all("//tr"), SizeIs(65));
  EXPECT_THAT(page.all("//th"), SizeIs(6)) << "no column for each of so many owners";
}

}  // namespace
}  // namespace cp_pool::test
