#include <fmt/format.h>

#include "driver/report/pictures/pictures.h"
#include "driver/report/testing/parsed_page.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

ParsedPage timeline_page(const RunReport& run) {
  return page_with([&](pugi::xml_node body) { append_timeline(body, run); });
}

void add_pool(RunReport& run, const PoolId& id, double from, double to, RetireReason reason = RetireReason::finished) {
  run.add(PoolSpawned{.pool = id, .world_size = 2, .at_ms = from});
  PoolReady ready = pool_ready(id.generation);
  ready.pool = id;
  ready.spawn_to_ready_ms = 100;
  ready.at_ms = from + 100;
  run.add(ready);
  PoolRetired retired = pool_retired(reason);
  retired.pool = id;
  retired.at_ms = to;
  run.add(retired);
}

void add_case(RunReport& run, const PoolId& pool, const std::string& id, CaseOutcome outcome, double from, double to) {
  CaseFinished event = finished(0, id, outcome);
  event.pool = pool;
  event.duration_ms = to - from;
  event.at_ms = to;
  run.add(event);
}

TEST(TimelineSvg, StaysSmallHoweverManyCasesThereAre) {
  RunReport run;
  const std::string id = "te-flash/cp_1_0/p2p/cp2/thd/bf16/" + std::string(60, 'x');
  for (int key = 0; key < 4; ++key) {
    const PoolId pool{fmt::format("cpu/{}", key), 1};
    add_pool(run, pool, 0, 500'000);
    for (int i = 0; i < 5000; ++i) {
      add_case(run, pool, id, i % 50 == 0 ? CaseOutcome::fail : CaseOutcome::pass, 100 * i, 100 * (i + 1));
    }
  }
  const ParsedPage page = timeline_page(run);
  EXPECT_LT(page.text.size(), 1'200'000U) << "for 20000 cases";
  EXPECT_GT(page.all("//g[title]").size(), 1000U) << "as fine as can be seen";
  EXPECT_THAT(page.one("//desc"), HasSubstr("20000 cases"));
}

TEST(TimelineSvg, StaysSmallWhenEachCaseHasAPoolOfItsOwn) {
  RunReport run;
  for (int i = 0; i < 5000; ++i) {
    const PoolId pool{"cpu/2", i + 1};
    add_pool(run, pool, 1000 * i, 1000 * (i + 1), i == 7 ? RetireReason::crash : RetireReason::max_cases);
    add_case(run, pool, "te-flash/cp_1_0/p2p/cp2/thd/bf16", CaseOutcome::pass, 1000 * i + 800, 1000 * i + 900);
  }
  const ParsedPage page = timeline_page(run);
  expect_readable(page);
  EXPECT_LT(page.text.size(), 500'000U);
  EXPECT_THAT(page.all("//rect[@class='pool bordered']/title"),
              Contains("cpu/2 #1 to #10, 10 cases; 1 of these pools given up"));
  EXPECT_THAT(page.one("//desc"), HasSubstr("5000 cases on 5000 pools"));
}

TEST(TimelineSvg, PoolsOfAKeyFollowOneAnotherInALane) {
  RunReport run;
  add_pool(run, {"cpu/2", 1}, 0, 1000);
  add_pool(run, {"cpu/2", 2}, 1000, 2000);
  add_pool(run, {"cpu/2", 3}, 1500, 3000);  // of another run at the same time
  add_pool(run, {"cpu/2", 4}, 4000, 5000);
  EXPECT_THAT(timeline_page(run).all("//text[contains(., '#')]"), ElementsAre("cpu/2 #1", "#2", "#4", "cpu/2 #3"));
}

TEST(TimelineSvg, ThereIsNoneWithoutPoolsOrTimes) {
  RunReport run;
  EXPECT_THAT(timeline_page(run).all("//body/*"), IsEmpty());
  run.add(PoolSpawned{{"cpu/2", 1}, 2, {}});
  run.add(finished(0, "id", CaseOutcome::pass));
  EXPECT_THAT(timeline_page(run).all("//body/*"), IsEmpty());
}

}  // namespace
}  // namespace cp_pool::test
