#include "driver/cli/history/case_history.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/testing/attention.h"

namespace cp_pool {
namespace {

using ::testing::ElementsAre;

Item case_of(const std::string& model, const std::string& id) {
  Item named{.id = id, .payload = {}, .rerun = ""};
  test::attention(named.payload).suite = "demo";
  test::attention(named.payload).model = model;
  return named;
}

std::vector<std::string> ordered(const std::vector<Item>& cases, const CaseHistory& history) {
  std::vector<std::string> ids;
  for (const std::size_t i : ordered_by_history(cases, history)) ids.push_back(cases[i].id);
  return ids;
}

TEST(CaseHistory, PutsFailuresFirstThenWhatWasNeverTimedThenTheLongest) {
  const std::vector<Item> cases = {case_of("a", "short"), case_of("b", "long"), case_of("c", "new"),
                                   case_of("d", "failed"), case_of("e", "failed and long")};
  const CaseHistory history{.failed = {"failed", "failed and long"},
                            .duration_ms = {{"short", 1}, {"long", 9}, {"failed", 1}, {"failed and long", 2}}};
  EXPECT_THAT(ordered(cases, history), ElementsAre("failed and long", "failed", "new", "long", "short"));
}

TEST(CaseHistory, KeepsCasesTogetherThatShareExpectedResults) {
  const std::vector<Item> cases = {case_of("a", "a1"), case_of("b", "b1"), case_of("a", "a2"), case_of("b", "b2"),
                                   case_of("c", "c1")};
  const CaseHistory history{.failed = {"b2"}, .duration_ms = {{"a1", 2}, {"a2", 5}, {"b1", 1}, {"b2", 1}, {"c1", 4}}};
  EXPECT_THAT(ordered(cases, history), ElementsAre("b2", "b1", "a2", "a1", "c1"));
}

TEST(CaseHistory, LeavesEqualCasesInListedOrderAlsoWhereGroupsAreMixed) {
  const std::vector<Item> cases = {case_of("a", "a1"), case_of("b", "b1"), case_of("a", "a2"), case_of("b", "b2")};
  EXPECT_THAT(ordered(cases, {}), ElementsAre("a1", "a2", "b1", "b2"));
  EXPECT_THAT(ordered({}, {}), ElementsAre());
}

}  // namespace
}  // namespace cp_pool
