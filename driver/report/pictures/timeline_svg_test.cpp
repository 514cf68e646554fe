#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/report/pictures/pictures.h"
#include "driver/report/testing/parsed_page.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

ParsedPage timeline_page(const RunReport& run) {
  return page_with([&](pugi::xml_node body) { append_timeline(body, run); });
}

void add_pool(RunReport& run, const PoolId& id, double from, double to, RetireReason reason = RetireReason::finished,
              const std::string& detail = "") {
  run.add(PoolSpawned{.pool = id, .world_size = 2, .pids = {}, .at_ms = from});
  PoolReady ready = pool_ready(id.generation);
  ready.pool = id;
  ready.spawn_to_ready_ms = 100;
  ready.at_ms = from + 100;
  run.add(ready);
  PoolRetired retired = pool_retired(reason, detail);
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

const PoolId kOnePool{"cpu/2", 1};

TEST(TimelineSvg, SaysOfEachCaseAndPoolWhatItIs) {
  RunReport run;
  add_pool(run, kOnePool, 0, 2000, RetireReason::crash, "rank 1 died: exit 3");
  add_case(run, kOnePool, "te/<a>", CaseOutcome::pass, 200, 1200);
  add_case(run, kOnePool, "te/b", CaseOutcome::crash, 1200, 2000);
  const ParsedPage page = timeline_page(run);
  expect_readable(page);
  EXPECT_THAT(page.all("//g/title"), Contains("te/<a>: pass, 1.00 s"));
  EXPECT_THAT(page.all("//g/title"), Contains("te/b: crash, 800 ms"));
  EXPECT_THAT(page.all("//rect/title"), Contains("cpu/2 #1, ready after 100 ms, 2 cases; crash: rank 1 died: exit 3"));
  EXPECT_THAT(page.one("//desc"), AllOf(HasSubstr("2 cases on 1 pool in 2.00 s"), HasSubstr("1 pool given up")));
  EXPECT_THAT(page.one("//figcaption"), Not(HasSubstr("not shown")));
}

TEST(TimelineSvg, AFailureThatWasExpectedIsNotDrawnAsOne) {
  RunReport run;
  add_pool(run, kOnePool, 0, 2000);
  CaseFinished event = finished(0, "te/a", CaseOutcome::fail);
  event.expected = Expected{.outcome = CaseOutcome::fail, .reason = "issue 5"};
  event.pool = kOnePool;
  event.duration_ms = 800;
  event.at_ms = 1500;
  run.add(event);
  const ParsedPage page = timeline_page(run);
  EXPECT_THAT(page.all("//g/title"), Contains("te/a: xfail, 800 ms"));
  EXPECT_THAT(page.all("//g[title='te/a: xfail, 800 ms']/rect/@class"), ElementsAre("fill-other partly case"));
}

TEST(TimelineSvg, WhatFailedHasATextureAndStandsOut) {
  RunReport run;
  add_pool(run, kOnePool, 0, 2000);
  add_case(run, kOnePool, "a", CaseOutcome::pass, 200, 1000);
  add_case(run, kOnePool, "b", CaseOutcome::fail, 1000, 2000);
  const ParsedPage page = timeline_page(run);
  EXPECT_THAT(page.all("//g[title='a: pass, 800 ms']/rect/@height"), ElementsAre("14"));
  EXPECT_THAT(page.all("//g[title='b: fail, 1.00 s']/rect/@height"), ElementsAre("19", "19"));
  EXPECT_THAT(page.all("//g[title='b: fail, 1.00 s']/rect/@fill"), ElementsAre("url(#timeline-bad)"));
}

TEST(TimelineSvg, TheNextPoolOfALaneSaysWhyTheOneBeforeIsGone) {
  RunReport run;
  add_pool(run, {"cpu/2", 1}, 0, 2000, RetireReason::crash);
  add_pool(run, {"cpu/2", 2}, 2000, 4000, RetireReason::max_cases);
  add_pool(run, {"cpu/2", 3}, 4000, 6000);
  const ParsedPage page = timeline_page(run);
  EXPECT_THAT(page.all("//text[contains(., '#')]"), ElementsAre("cpu/2 #1", "#2 after crash", "#3"));
  EXPECT_THAT(page.all("//path[@class='cross']"), SizeIs(2)) << "one on the pool, one in the legend";
}

TEST(TimelineSvg, APoolThatTheUserStoppedWasNotGivenUp) {
  RunReport run;
  add_pool(run, {"cpu/2", 1}, 0, 2000, RetireReason::paused);
  add_pool(run, {"cpu/2", 2}, 2000, 4000, RetireReason::interrupted);
  const ParsedPage page = timeline_page(run);
  EXPECT_THAT(page.all("//text[contains(., '#')]"), ElementsAre("cpu/2 #1", "#2"));
  EXPECT_THAT(page.all("//path[@class='cross']"), SizeIs(1)) << "the one in the legend";
  EXPECT_THAT(page.one("//desc"), HasSubstr("0 pools given up"));
}

TEST(TimelineSvg, HasPausesAndTimesWithoutPools) {
  RunReport run;
  add_pool(run, {"cpu/2", 1}, 0, 2000);
  add_pool(run, {"cpu/2", 2}, 7'202'000, 7'204'000);
  run.add(RunPaused{.paused_ms = 12'000, .at_ms = 1000});
  CaseFinished unsent = finished(0, "id", CaseOutcome::not_run);
  unsent.pool.reset();
  unsent.at_ms = 10;
  run.add(unsent);
  const ParsedPage page = timeline_page(run);
  expect_readable(page);
  EXPECT_THAT(page.all("//text"), Contains("paused 12.0 s"));
  EXPECT_THAT(page.all("//rect/title"), Contains("2 h 00 m without a pool are left out"));
  EXPECT_THAT(page.one("//figcaption"), HasSubstr("1 case that no pool ran is not shown"));
}

TEST(TimelineSvg, ShortCasesAreOneBarThatCountsThem) {
  RunReport run;
  add_pool(run, kOnePool, 0, 100'000);
  for (int i = 0; i < 10; ++i) {
    add_case(run, kOnePool, fmt::format("c{}", i), i == 6 ? CaseOutcome::fail : CaseOutcome::pass, 1000 + i * 10,
             1010 + i * 10);
  }
  const ParsedPage page = timeline_page(run);
  EXPECT_THAT(page.all("//g[contains(title, '10 cases')]/title"),
              ElementsAre("10 cases: 9 pass, 1 fail. c6: fail, 10 ms"));
  EXPECT_THAT(page.all("//g[contains(title, '10 cases')]/rect"), SizeIs(3)) << "passes, the failure and its texture";
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
