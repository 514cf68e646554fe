#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/report/case_text.h"
#include "driver/report/diagnosis_text.h"
#include "driver/report/reports.h"
#include "driver/report/testing/parsed_page.h"
#include "driver/report/testing/window_diagnosis.h"
#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string page_text(const std::vector<Event>& events) {
  RunReport run = report_of(events);
  run.header.baseline = "before.jsonl";
  run.header.rerun_failed = "cp-pool run --rerun-failed e.jsonl";
  return html_report(run);
}

class Page : public ParsedPage {
 public:
  explicit Page(const std::vector<Event>& events) : ParsedPage(page_text(events)) { expect_readable(*this); }
};

TEST(Html, ShowsWhatCameOfACaseInEarlierRuns) {
  CaseFinished known = finished(0, "te-flash/a", CaseOutcome::pass);
  known.earlier = {{.run = "251124-100000", .outcome = CaseOutcome::fail, .duration_ms = 99},
                   {.run = "251125-100000", .outcome = CaseOutcome::pass, .duration_ms = 12},
                   {.run = "251125-110000", .outcome = CaseOutcome::pass, .duration_ms = 17}};
  const Page page(
      {run_started(2), known, finished(1, "te-flash/b", CaseOutcome::pass), run_finished({2, 0, 0, 0, 0, 0, 0, 0, 0})});
  EXPECT_THAT(page.all("//tr[@id='case-0']/td[4]/span"), ElementsAre("f", "p", "p", " 12 ms to 17 ms"));
  EXPECT_EQ(page.one("//tr[@id='case-0']/td[4]/span[1]/@title"), "251124-100000: fail, 99 ms");
  EXPECT_THAT(page.all("//tr[@id='case-1']/td[4]/span"), ElementsAre());
}

TEST(Html, AnErrorWhereThereMustBeNoneIsNearestToItsBound) {
  CaseFinished event = failed_case(0, "id");
  event.checks.at(0).bound = 0;
  EXPECT_THAT(Page({run_started(1), event, run_finished({0, 1, 0, 0, 0, 0, 0, 0, 0})}).one("//tr[@id='case-0']/td[6]"),
              StartsWith("inf out"));
  event.checks.at(0).error = 0;
  EXPECT_THAT(Page({run_started(1), event, run_finished({0, 1, 0, 0, 0, 0, 0, 0, 0})}).one("//tr[@id='case-0']/td[6]"),
              StartsWith("2.58 dq"));
}

TEST(Html, AnErrorThatIsNoNumberIsNearestToItsBound) {
  for (const int nan_at : {0, 1}) {
    CaseFinished event = failed_case(0, "id");
    event.checks.at(nan_at).error = std::numeric_limits<double>::quiet_NaN();
    const Page page({run_started(1), event, run_finished({0, 1, 0, 0, 0, 0, 0, 0, 0})});
    EXPECT_THAT(page.one("//tr[@id='case-0']/td[6]"), StartsWith("- " + event.checks.at(nan_at).tensor));
  }
}

TEST(Html, APassWithoutFiguresSaysSo) {
  CaseFinished event = finished(0, "id", CaseOutcome::pass);
  event.checks.clear();
  const Page page({run_started(1), event, run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0})});
  EXPECT_EQ(page.one("//tr[@id='case-0']/td[6]"), "");
  EXPECT_EQ(page.one("//tr[@id='case-0']/td[7]"), "unverified by figures");
  EXPECT_THAT(page.one("//body/pre[1]"), HasSubstr("1 unverified by figures: "));
}

TEST(Html, ACheckWithoutFiguresIsNotNearestToABound) {
  CaseFinished event = finished(0, "id", CaseOutcome::pass);
  event.checks[0].measured = false;
  const Page page({run_started(1), event, run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0})});
  EXPECT_EQ(page.one("//tr[@id='case-0']/td[6]"), "0.50 out rank 1");
}

TEST(Html, AFailureHasPicturesThenASentenceThenALittleEvidence) {
  CaseFinished event = failed_case(0, "te-flash/a");
  event.diagnosis = window_diagnosis();
  for (int i = 0; i < 9; ++i) event.diagnosis->evidence.push_back(fmt::format("evidence {}", i));
  const Page page({run_started(1), event, run_finished({0, 1, 0, 0, 0, 0, 0, 0, 0})});
  const std::string failure = "//details[@class='failure']";
  EXPECT_EQ(page.one(failure + "/figure[1]/following-sibling::p[1]"), cause_line(*event.diagnosis));
  EXPECT_THAT(page.all(failure + "/p[1]/following-sibling::figure"), ElementsAre()) << "pictures come first";
  const std::string shown = page.one(failure + "/pre");
  EXPECT_EQ(std::ranges::count(shown, '\n'), 5);
  const std::string rest = page.one(failure + "/details[@class='calm']/pre");
  EXPECT_EQ(cause_line(*event.diagnosis) + '\n' + shown + rest, failure_details(event) + stderr_details(event));
  EXPECT_EQ(page.one(failure + "/details/summary"), fmt::format("{} more lines", std::ranges::count(rest, '\n')));
  EXPECT_THAT(page.all(failure + "/details/@open"), ElementsAre());
}

TEST(Html, FailuresStandInTheOrderOfTheirListAndTheFirstOfEachKindIsOpen) {
  const auto error = [](std::size_t index, const std::string& id, const std::string& reason) {
    return finished(index, id, CaseOutcome::error, reason);
  };
  const Page page({run_started(5), error(4, "e", "rank 0: boom 7"), error(1, "b", "no memory"),
                   error(3, "d", "no memory"), error(0, "a", "rank 1: boom 8"), error(2, "c", "rank 1: boom"),
                   run_finished({0, 0, 0, 5, 0, 0, 0, 0, 0})});
  EXPECT_THAT(page.one("//pre[contains(., '5 failed:')]"),
              StartsWith("5 failed:\n  error    3 cases, the first: rank 1: boom 8\n           a\n           c\n"
                         "           e\n  error    2 cases: no memory\n           b\n           d\n"));
  EXPECT_THAT(page.all("//details/summary/a/@href"),
              ElementsAre("#case-0", "#case-2", "#case-4", "#case-1", "#case-3"));
  EXPECT_THAT(page.all("//details[@open]/summary/a/@href"), ElementsAre("#case-0", "#case-1"));
}

TEST(Html, OfManyKindsOfFailuresTheFirstAreOpen) {
  std::vector<Event> events{run_started(7)};
  for (std::size_t i = 0; i < 7; ++i) {
    events.emplace_back(finished(i, "id", CaseOutcome::error, "boom " + std::string(i, 'x')));
  }
  events.emplace_back(run_finished({0, 0, 0, 7, 0, 0, 0, 0, 0}));
  const Page page(events);
  EXPECT_EQ(page.all("//details").size(), 7U);
  EXPECT_THAT(page.all("//details[@open]/summary/a/@href"),
              ElementsAre("#case-0", "#case-1", "#case-2", "#case-3", "#case-4"));
}

TEST(Html, CasesWithoutAPoolAreToldOfOnceForEachReason) {
  std::vector<Event> events{run_started(3)};
  for (std::size_t i = 0; i < 3; ++i) {
    CaseFinished event = finished(i, "id", CaseOutcome::infra, i < 2 ? "no license" : "no GPU");
    event.stderr_tails = {{.rank = 0, .text = "license expired\n", .fenced = true}};
    events.emplace_back(event);
  }
  events.emplace_back(run_finished({0, 0, 0, 0, 0, 0, 3, 0, 0}));
  const Page page(events);
  EXPECT_EQ(page.all("//p[@class='bad']").size(), 1U);
  EXPECT_THAT(page.all("//details/p[1]"), ElementsAre("no license", "no GPU"));
  EXPECT_THAT(page.all("//details/pre"), ::testing::Each(HasSubstr("license expired")));
}

TEST(Html, TheOverviewCountsByModelTypeAndLayoutAndLeadsToWhatDidNotPass) {
  std::vector<Event> events{run_started(6)};
  const auto add = [&](const std::string& model, CommType comm, CaseOutcome outcome) {
    CaseFinished event = finished(events.size() - 1, "id", outcome);
    attention(event.payload).model = model;
    attention(event.payload).comm = comm;
    events.emplace_back(event);
  };
  add("m1", CommType::p2p, CaseOutcome::pass);
  add("m1", CommType::p2p, CaseOutcome::skip);
  add("m1", CommType::p2p, CaseOutcome::crash);
  add("m1", CommType::a2a, CaseOutcome::pass);
  add("m2", CommType::a2a, CaseOutcome::skip);
  add("m2", CommType::a2a, CaseOutcome::pass);
  events.emplace_back(run_finished({3, 0, 2, 0, 0, 1, 0, 0, 0}));
  const Page page(events);
  const std::string table = "//table[preceding-sibling::h2[1][starts-with(., 'te-flash: passed by')]]";
  EXPECT_THAT(page.all(table + "/tr[1]/th"), ElementsAre("model", "a2a bshd", "p2p bshd"));
  EXPECT_THAT(page.all(table + "/tr[2]/td"), ElementsAre("m1", "1", "1 of 3"));
  EXPECT_THAT(page.all(table + "/tr[3]/td"), ElementsAre("m2", "1 of 2", ""));
  EXPECT_THAT(page.all(table + "/tr/td/@class"), ElementsAre("pass", "bad", "other"));
  EXPECT_THAT(page.all(table + "//a/@href"), ElementsAre("#case-3", "#case-2", "#case-4"));
}

TEST(Html, PoolsTimesAndPhasesAreThere) {
  CaseFinished timed = compared_case(0, "te-flash/a", 3, 2);
  timed.timings_ms = {{"forward", 1.5}};
  PoolReady ready = pool_ready();
  ready.ready.versions = {{"torch", "2.11.0"}};
  const Page page(
      {run_started(1), PoolSpawned{{"cpu/2", 1}, 2, {70, 71}}, ready, PoolSpawned{{"cpu/4", 1}, 4, {72, 73, 74, 75}},
       timed, pool_retired(RetireReason::crash, "rank 1 died: exit 3"), run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0})});
  const std::string pools = "//h2[.='Pools']/following-sibling::table[1]";
  EXPECT_THAT(page.all(pools + "/tr[2]/td"), ElementsAre("cpu/2 #1", "812 ms", "3", "crash: rank 1 died: exit 3",
                                                         "host", "cp-pool-worker 0.1.0, torch 2.11.0"));
  EXPECT_THAT(page.all(pools + "/tr[3]/td"), ElementsAre("cpu/4 #1", "never", "0", "", "", ""));
  EXPECT_THAT(page.one("//h2[.='How fast']/following-sibling::pre[1]"),
              AllOf(HasSubstr("te-flash/a"), HasSubstr("before.jsonl")));
  EXPECT_THAT(page.one("//h2[.='Where the time went']/following-sibling::pre[1]"), HasSubstr("forward"));
}

TEST(Html, OfManyFailuresTheFirstHavePictures) {
  std::vector<Event> events{run_started(60)};
  for (std::size_t i = 0; i < 60; ++i) {
    CaseFinished event = failed_case(i, "id");
    event.diagnosis = window_diagnosis();
    events.emplace_back(event);
  }
  events.emplace_back(run_finished({0, 60, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Page(events).all("//details//svg[contains(@class, 'mask')]").size(), 50U);
}

TEST(Html, ForeignTextIsTextNotMarkup) {
  CaseFinished event = finished(0, "<b>id</b>", CaseOutcome::crash,
                                protocol::clean_text("a\x01 \x1b[31mred\x1b[0m \xff </pre><script>&"));
  attention(event.payload).model = "<m>";
  event.rerun = "cp-pool submit '<&>'";
  const Page page({run_started(1), event, run_finished({0, 0, 0, 0, 0, 1, 0, 0, 0})});
  EXPECT_EQ(page.one("//tr[@id='case-0']/td[4]"), "<b>id</b>");
  EXPECT_EQ(page.one("//details/p[1]"), "a\\x01 \\x1b[31mred\\x1b[0m \xef\xbf\xbd </pre><script>&");
  EXPECT_EQ(page.one("//details/p/code"), "cp-pool submit '<&>'");
  EXPECT_THAT(page.all("//script"), ElementsAre());
}

TEST(Html, AnInterruptedRunSaysSo) {
  RunFinished end = run_finished({1, 0, 0, 0, 0, 0, 0, 1, 0});
  end.interrupted = true;
  end.exit_code = 130;
  EXPECT_THAT(page_text({run_started(2), finished(0, "id", CaseOutcome::pass), end}),
              AllOf(HasSubstr("interrupted"), HasSubstr("class=\"bad\"")));
}

TEST(Html, TheStyleIsWhatABrowserReads) {
  const Page page({run_started(0), run_finished({})});
  EXPECT_EQ(page.one("//style").find_first_of("<&>"), std::string::npos) << "escaped in the file, and not in a browser";
}

}  // namespace
}  // namespace cp_pool::test
