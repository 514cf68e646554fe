#include "driver/cli/history/case_history.h"

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/report/output_file.h"
#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using ::testing::ElementsAre;

Item case_of(const std::string& model, const std::string& id) {
  Item named{.id = id};
  attention(named.payload).suite = "demo";
  attention(named.payload).model = model;
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

const CaseTrends::key_type kCaseOfOwn{"a", "own"};

class Trends : public ::testing::Test {
 protected:
  void add(const std::string& id, const std::vector<CaseFinished>& cases, const std::string& device = "cpu",
           const std::vector<std::string>& implementations = {"own"}) {
    std::filesystem::create_directories(folder / id);
    {
      JsonlSink sink{folder / id / kRecordEvents};
      RunStarted header = run_started(cases.size());
      header.device = device;
      header.implementations = implementations;
      sink.on_event(header);
      for (const CaseFinished& each : cases) sink.on_event(each);
    }
    write_file(folder / id / kRecordFile, "{}");
  }
  [[nodiscard]] CaseTrends read(const std::string& before = "") const {
    return read_case_trends(run_records(folder.path()), run_started(1), before);
  }

  TemporaryFolder folder;
};

std::vector<std::string> texts(const std::vector<EarlierRun>& earlier) {
  std::vector<std::string> out;
  for (const EarlierRun& run : earlier) out.push_back(run.run + " " + std::string{to_string(run.outcome)});
  return out;
}

TEST_F(Trends, AreOfTheRunsOfOneSizeAndDeviceTheOldestFirst) {
  add("251125-070000", {finished(0, "a", CaseOutcome::pass), finished(1, "b", CaseOutcome::skip)});
  add("251125-080000", {finished(0, "a", CaseOutcome::fail), finished(1, "a", CaseOutcome::pass)});
  add("251125-090000", {finished(0, "a", CaseOutcome::pass)}, "cuda");
  add("251125-100000", {finished(0, "a", CaseOutcome::not_run)});
  write_file(folder / "251125-100000" / kRecordEvents, "no event\n");
  add("251125-110000", {finished(0, "a", CaseOutcome::pass)});
  const CaseTrends trends = read();
  EXPECT_THAT(texts(trends.at(kCaseOfOwn)),
              ElementsAre("251125-070000 pass", "251125-080000 fail", "251125-110000 pass"));
  EXPECT_THAT(texts(trends.at({"b", "own"})), ElementsAre("251125-070000 skip"));
  EXPECT_THAT(texts(read("251125-080000").at(kCaseOfOwn)), ElementsAre("251125-070000 pass"));
}

TEST_F(Trends, AreOfOneImplementation) {
  CaseFinished of_override = finished(1, "b", CaseOutcome::pass);
  of_override.implementation = "adapter mine.py";
  const std::vector<CaseFinished> cases = {finished(0, "a", CaseOutcome::fail)};
  add("251125-070000", cases, "cpu", {"adapter mine.py"});
  add("251125-080000", cases, "cpu", {});  // of a version that did not write it
  add("251125-090000", {finished(0, "a", CaseOutcome::pass), of_override}, "cpu", {"own", "adapter mine.py"});
  EXPECT_THAT(texts(read().at(kCaseOfOwn)), ElementsAre("251125-090000 pass"));
  EXPECT_FALSE(read().contains({"b", "own"}));
  RunStarted adapter = run_started(1);
  adapter.implementations = {"adapter mine.py"};
  const CaseTrends of_adapter = read_case_trends(run_records(folder.path()), adapter);
  EXPECT_THAT(texts(of_adapter.at({"a", "adapter mine.py"})), ElementsAre("251125-070000 fail"));
  EXPECT_THAT(texts(of_adapter.at({"b", "adapter mine.py"})), ElementsAre("251125-090000 pass"));
  adapter.implementations = {};
  EXPECT_TRUE(read_case_trends(run_records(folder.path()), adapter).empty()) << "unknown is not equal to unknown";
  const Item b{.id = "b"};
  EXPECT_EQ(case_history(of_adapter, std::vector{b}, "adapter mine.py").duration_ms.at("b"), 200);
  EXPECT_TRUE(case_history(of_adapter, std::vector{b}, "own").duration_ms.empty());
}

TEST_F(Trends, AreOfTheNewestRuns) {
  for (int i = 10; i < 25; ++i) add("251125-0700" + std::to_string(i), {finished(0, "a", CaseOutcome::pass)});
  const auto earlier = read().at(kCaseOfOwn);
  ASSERT_EQ(earlier.size(), kTrendRuns);
  EXPECT_EQ(earlier.front().run, "251125-070015");
  EXPECT_EQ(earlier.back().run, "251125-070024");
}

TEST_F(Trends, AreAHistoryByTheLastRunOfEachCase) {
  add("251125-070000", {finished(0, "a", CaseOutcome::fail), finished(1, "b", CaseOutcome::pass)});
  add("251125-080000", {finished(3, "a", CaseOutcome::pass)});
  const std::vector<Item> cases = {{.id = "a"}, {.id = "b"}};
  const CaseHistory history = case_history(read(), cases, "own");
  EXPECT_TRUE(history.failed.empty());
  EXPECT_EQ(history.duration_ms.at("a"), 400);
  EXPECT_EQ(history.duration_ms.at("b"), 200);
}

TEST_F(Trends, AreGivenToTheCasesThatHaveNone) {
  class Kept : public EventSink {
   public:
    void on_event(const Event& event) override { events.push_back(event); }
    std::vector<Event> events;
  } kept;
  TrendSink sink{{{kCaseOfOwn, {{.run = "1", .outcome = CaseOutcome::pass, .duration_ms = 1}}}}, kept};
  CaseFinished own = finished(1, "a", CaseOutcome::pass);
  own.earlier = {{.run = "0", .outcome = CaseOutcome::fail, .duration_ms = 1}};
  CaseFinished by_another = finished(3, "a", CaseOutcome::pass);
  by_another.implementation = "adapter mine.py";
  for (const Event& event : std::vector<Event>{run_started(4), finished(0, "a", CaseOutcome::pass), own,
                                               finished(2, "b", CaseOutcome::pass), by_another, RunFinished{}}) {
    sink.on_event(event);
  }
  ASSERT_EQ(kept.events.size(), 6U);
  EXPECT_EQ(std::get<CaseFinished>(kept.events[1]).earlier.at(0).run, "1");
  EXPECT_EQ(std::get<CaseFinished>(kept.events[2]).earlier.at(0).run, "0");
  EXPECT_TRUE(std::get<CaseFinished>(kept.events[3]).earlier.empty());
  EXPECT_TRUE(std::get<CaseFinished>(kept.events[4]).earlier.empty());
}

}  // namespace

}  // namespace cp_pool::test
