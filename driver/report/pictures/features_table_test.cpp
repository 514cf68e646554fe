#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/report/pictures/pictures.h"
#include "driver/report/testing/parsed_page.h"
#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

CaseFinished with(std::size_t index, CaseOutcome outcome, void (*change)(Case& c)) {
  CaseFinished event = finished(index, "id", outcome);
  Case& c = attention(event.payload);
  c.kv_heads = c.heads;
  change(c);
  return event;
}

ParsedPage features_page(const std::vector<Event>& events) {
  return page_with([&](pugi::xml_node body) { append_features(body, report_of(events)); });
}

std::vector<std::string> features_of(void (*change)(Case& c)) {
  return features_page({with(0, CaseOutcome::pass, change)}).all("//tr/td[1]");
}

TEST(FeaturesTable, AFailureThatWasExpectedIsNotMarkedAsOne) {
  CaseFinished expected = with(3, CaseOutcome::fail, [](Case& c) { c.causal = true; });
  expected.expected = Expected{.outcome = CaseOutcome::fail, .reason = "issue 5"};
  const ParsedPage page = features_page({expected});
  EXPECT_THAT(page.all("//tr[td[1]='causal']//rect/@class"), ElementsAre("fill-other partly"));
  EXPECT_THAT(page.all("//tr[td[1]='causal']/td[3]/@class"), ElementsAre("number other"));
  const ParsedPage both = features_page({expected, with(4, CaseOutcome::fail, [](Case& c) { c.causal = true; })});
  EXPECT_THAT(both.all("//tr[td[1]='causal']//rect/@class"), ElementsAre("fill-other partly", "fill-bad"));
  EXPECT_THAT(both.all("//tr[td[1]='causal']/td[3]/@class"), ElementsAre("number bad"));
}

TEST(FeaturesTable, KnowsTheFeaturesOfACase) {
  EXPECT_THAT(features_of([](Case&) {}), ElementsAre("no mask", "bshd", "bf16", "2 ranks"));
  EXPECT_THAT(features_of([](Case& c) {
                c.causal = true;
                c.window = {4, 0};
                c.chunk = 8;
                c.kv_heads = 1;
                c.head_dim_v = 32;
                c.bias = BiasShape::shape_11ss;
                c.softmax = SoftmaxType::learnable;
                c.max_logit = true;
              }),
              ElementsAre("causal", "window", "chunk", "GQA", "MLA", "bias", "softmax learnable", "max_logit", "bshd",
                          "bf16", "2 ranks"));
  EXPECT_THAT(features_of([](Case& c) {
                c.softmax = SoftmaxType::off_by_one;
                c.input_scale = 10;
                c.seqlen_kv = 256;
                c.layout = Layout::thd;
                c.pad_between_seqs = true;
                c.training = false;
                c.deterministic = true;
                c.strided = true;
                c.dtype = DType::fp16;
                c.cp_size = 1;
              }),
              ElementsAre("no mask", "softmax off_by_one", "large scores", "unequal q and kv", "thd with padding",
                          "forward only", "deterministic", "strided", "fp16", "1 rank"));
}

TEST(FeaturesTable, CountsScoresFarFrom0AsLarge) {
  EXPECT_THAT(features_of([](Case& c) { c.score_offset = -100; }), ::testing::Contains("large scores"));
}

TEST(FeaturesTable, CountsOutcomesAndLeadsToTheFirstCaseOfEach) {
  const auto causal = [](Case& c) { c.causal = true; };
  const ParsedPage page =
      features_page({with(7, CaseOutcome::fail, causal), with(3, CaseOutcome::fail, causal),
                     with(1, CaseOutcome::pass, causal), with(2, CaseOutcome::skip, [](Case& c) { c.cp_size = 4; })});
  expect_readable(page);
  EXPECT_THAT(page.all("//tr[1]/th"), ElementsAre("feature", "cases", "pass", "fail", "skip", "parts"));
  EXPECT_THAT(page.all("//tr[td[1]='causal']/td"), ElementsAre("causal", "3", "1", "2", "", ""));
  EXPECT_THAT(page.all("//tr[td[1]='causal']//a/@href"), ElementsAre("#case-1", "#case-3"));
  EXPECT_THAT(page.all("//tr[td[1]='causal']//rect/@width"), ElementsAre("33.33", "66.67"));
  EXPECT_THAT(page.all("//tr[td[1]='causal']//rect/@height"), ElementsAre("5", "10")) << "failures are higher";
  EXPECT_THAT(page.all("//tr[td[1]='4 ranks']/td"), ElementsAre("4 ranks", "1", "", "", "1", ""));
}

TEST(FeaturesTable, ThereIsNoneWithoutCases) {
  EXPECT_THAT(features_page({}).all("//body/*"), IsEmpty());
}

}  // namespace
}  // namespace cp_pool::test
