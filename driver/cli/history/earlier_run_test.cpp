#include "driver/cli/history/earlier_run.h"

#include <gmock/gmock.h>

#include "cases/case_json.h"
#include "cases/testing/temporary_folder.h"
#include "driver/report/output_file.h"
#include "driver/testing/attention.h"
#include "driver/testing/command_error.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

std::filesystem::path events_file(const TemporaryFolder& folder, const std::vector<Event>& events) {
  JsonlSink sink{folder / "events.jsonl"};
  for (const Event& event : events) sink.on_event(event);
  return folder / "events.jsonl";
}

FailedCases failed_in(const std::vector<Event>& events) {
  const TemporaryFolder folder;
  return read_failed_cases(events_file(folder, events));
}

FailedCases failed_in_text(const std::string& text) {
  const TemporaryFolder folder;
  write_file(folder / "e", text);
  return read_failed_cases(folder / "e");
}

std::string refusal(const std::function<void()>& action) {
  return test::command_error(ExitCode::bad_input, action);
}

TEST(FailedCases, AreThoseThatNeitherPassedNorWereSkipped) {
  const FailedCases failed =
      failed_in({run_started(9), finished(0, "pass", CaseOutcome::pass), finished(1, "fail", CaseOutcome::fail),
                 finished(2, "skip", CaseOutcome::skip), finished(3, "error", CaseOutcome::error),
                 finished(4, "timeout", CaseOutcome::timeout), finished(5, "crash", CaseOutcome::crash),
                 finished(6, "infra", CaseOutcome::infra), finished(7, "cancelled", CaseOutcome::cancelled),
                 finished(8, "not-run", CaseOutcome::not_run), run_finished({1, 1, 1, 1, 1, 1, 1, 1, 1})});
  EXPECT_THAT(failed.ids, ElementsAre("cancelled", "crash", "error", "fail", "infra", "not-run", "timeout"));
  EXPECT_EQ(failed.title, "te-flash");
  EXPECT_EQ(failed.size, "small");
  EXPECT_FALSE(failed.unknown_rest);
}

TEST(FailedCases, OfSeveralRunsOfACaseOneFailureIsEnough) {
  EXPECT_THAT(failed_in({finished(0, "a", CaseOutcome::fail), finished(1, "a", CaseOutcome::pass)}).ids,
              ElementsAre("a"));
}

RunStarted run_of(const std::vector<std::string>& ids) {
  RunStarted event = run_started(ids.size());
  event.ids = ids;
  return event;
}

TEST(FailedCases, OfADriverThatWasKilledHaveAllThatHasNotFinished) {
  const FailedCases failed = failed_in({run_of({"a", "b", "c"}), finished(1, "a", CaseOutcome::pass)});
  EXPECT_THAT(failed.ids, ElementsAre("b", "c"));
  EXPECT_FALSE(failed.unknown_rest);
}

TEST(FailedCases, OfARepeatThatWasKilledHaveWhatHadNotRunAsOften) {
  RunStarted twice = run_of({"a", "b"});
  twice.cases = 4;
  EXPECT_THAT(failed_in({twice, finished(0, "a", CaseOutcome::pass), finished(1, "b", CaseOutcome::pass),
                         finished(2, "a", CaseOutcome::pass)})
                  .ids,
              ElementsAre("b"));
}

TEST(FailedCases, OfSeveralRunsOneOfWhichWasKilledHaveWhatThatLeft) {
  const RunFinished end = run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0});
  const std::vector<Event> whole{run_of({"x"}), finished(0, "x", CaseOutcome::pass), end};
  const std::vector<Event> killed{run_of({"a", "b"}), finished(0, "a", CaseOutcome::pass)};
  std::vector<Event> first = killed;
  first.insert(first.end(), whole.begin(), whole.end());
  EXPECT_THAT(failed_in(first).ids, ElementsAre("b"));
  std::vector<Event> last = whole;
  last.insert(last.end(), killed.begin(), killed.end());
  EXPECT_THAT(failed_in(last).ids, ElementsAre("b"));
}

TEST(FailedCases, OfAKilledDriverThatDoesNotSayWhatItsCasesAreHaveThoseThatWereRunning) {
  CaseStarted started;
  started.id = "running";
  const std::vector<Event> killed{run_started(3), started, finished(1, "a", CaseOutcome::pass)};
  EXPECT_THAT(failed_in(killed).ids, ElementsAre("running"));
  EXPECT_TRUE(failed_in(killed).unknown_rest);
  std::vector<Event> joined = killed;
  joined.insert(joined.end(),
                {run_of({"x"}), finished(0, "x", CaseOutcome::pass), run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0})});
  EXPECT_TRUE(failed_in(joined).unknown_rest);
}

std::string fail_of(const std::string& id) {
  return R"({"v":1,"ts":"T","type":"case_finished","id":")" + id + R"(","outcome":"fail","case":)" +
         to_json(example_case()).dump() + "}\n";
}

TEST(FailedCases, OfAFileThatEndsInTheMiddleOfALineAreThoseBefore) {
  const FailedCases failed =
      failed_in_text("{\"type\":\"run_started\"}\n" + fail_of("a") + R"({"type":"case_finished","id":"b","outc)");
  EXPECT_THAT(failed.ids, ElementsAre("a"));
  EXPECT_TRUE(failed.unknown_rest);
}

TEST(FailedCases, OfFilesThatWereJoinedInTheMiddleOfALineAreThoseOfBoth) {
  const std::string joined = R"({"v":1,"ts":"T","type":"run_started","ids":["a","b"]})"
                             "\n"
                             R"({"v":1,"ts":"T","type":"case_finished","id":"a","outc)"
                             R"({"v":1,"ts":"T","type":"run_started","ids":["c"]})"
                             "\n";
  EXPECT_THAT(failed_in_text(joined + fail_of("c")).ids, ElementsAre("a", "b", "c"));
}

TEST(FailedCases, OfACaseThatWasRerunTheLastRunCounts) {
  const RunFinished end = run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0});
  const FailedCases failed =
      failed_in({run_of({"a", "b"}), finished(0, "a", CaseOutcome::fail), finished(1, "b", CaseOutcome::fail), end,
                 run_of({"a"}), finished(0, "a", CaseOutcome::pass), end});
  EXPECT_THAT(failed.ids, ElementsAre("b"));
  ASSERT_EQ(failed.cases.size(), 1U);
  EXPECT_EQ(attention(failed.cases[0].payload.value()).heads, 4);
}

TEST(FailedCases, SayWhatIsWrongWithTheFile) {
  const auto error_for = [](const std::string& text) { return refusal([&] { failed_in_text(text); }); };
  EXPECT_THAT(error_for("{\"type\":\"run_started\"}\nhello\n"),
              AllOf(HasSubstr("is no events file"), HasSubstr("line 2")));
  EXPECT_THAT(error_for("{\"type\":\"case_finished\",\"id\":\"a\"}\n"), HasSubstr("line 1"));
  EXPECT_THAT(error_for("{}\n"), HasSubstr("holds no run"));
  EXPECT_THAT(error_for("{\"v\":2,\"type\":\"run_started\"}\n"),
              AllOf(HasSubstr("line 1"), HasSubstr("version 2, and this cp-pool reads 1")));
}

std::string error_of(const std::filesystem::path& file) {
  return refusal([&] { read_perf_baseline(file); });
}

TEST(PerfBaseline, HasTheTimesOfAnEventsFile) {
  const TemporaryFolder folder;
  const auto file = events_file(folder, {run_started(3), timed_case(0, "a", 2.5), timed_case(1, "b", 3),
                                         finished(2, "untimed", CaseOutcome::pass), timed_case(3, "a", 2.25),
                                         timed_case(4, "too fast for its clock", 0)});
  const PerfBaseline baseline = read_perf_baseline(file);
  ASSERT_THAT(baseline.cases, SizeIs(2));
  EXPECT_EQ(baseline.cases.at("a").ms, 2.25);
  EXPECT_EQ(baseline.cases.at("b").ms, 3);
  EXPECT_EQ(baseline.cases.at("b").payload, example_case());
  EXPECT_EQ(baseline.cases.at("b").device, "cpu");
  EXPECT_EQ(baseline.name, file.string());
}

TEST(PerfBaseline, SaysWhatIsWrongWithTheFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of(folder / "missing"), AllOf(HasSubstr("missing: No such file"), HasSubstr("cannot read")));
  EXPECT_THAT(error_of(folder / "."), HasSubstr("it is a folder"));
  write_file(folder / "text", "{\"type\":\"run_started\"}\nhello\n");
  EXPECT_THAT(error_of(folder / "text"), AllOf(HasSubstr("text is no events file"), HasSubstr("line 2")));
  write_file(folder / "list", "[1]\n");
  EXPECT_THAT(error_of(folder / "list"), HasSubstr("line 1"));
  write_file(folder / "case", R"({"type":"case_finished","id":"a","perf":{"ms":1},"case":{"heads":"four"}})");
  EXPECT_THAT(error_of(folder / "case"), HasSubstr("line 1"));
  write_file(folder / "empty", "");
  EXPECT_THAT(error_of(folder / "empty"), HasSubstr("empty has no times"));
  EXPECT_THAT(error_of(events_file(folder, {finished(0, "a", CaseOutcome::pass)})), HasSubstr("has no times"));
}

// --- Comparison ------------------------------------------------------------------------------------------------------

PerfBaseline some_baseline() {
  const PerfBaseline::Entry entry{.ms = 2.5, .payload = example_case(), .device = "cpu", .graph = false};
  return {.name = "before.jsonl", .cases = {{"a", entry}, {"b", entry}}};
}

RunConfig perf_config(const std::string& device = "cpu", bool graph = false) {
  RunConfig config;
  config.device = device;
  config.perf = protocol::PerfRequest{};
  config.perf->graph = graph;
  return config;
}

std::vector<Item> named(const std::vector<std::string>& ids, const Case& c = example_case()) {
  std::vector<Item> out;
  for (const std::string& id : ids) out.push_back({{.id = id, .payload = c}});
  return out;
}

TEST(Comparison, GivesEachCaseItsTimeInTheBaseline) {
  std::vector<Item> cases = named({"new", "a"});
  compare_with(some_baseline(), perf_config(), cases);
  EXPECT_EQ(cases[0].baseline_ms, std::nullopt);
  EXPECT_EQ(cases[1].baseline_ms, 2.5);
}

TEST(Comparison, RefusesABaselineOfAnotherProblemUnderTheSameId) {
  Case c = example_case();
  c.seqlen_q = 64;
  std::vector<Item> cases = named({"new", "b", "a"}, c);
  cases.back().payload = example_case();
  EXPECT_EQ(
      refusal([&] { compare_with(some_baseline(), perf_config(), cases); }),
      "the baseline before.jsonl is of other problems: b has seqlen_q 128 there and 64 here (1 of 2 cases differ)");
}

TEST(Comparison, SaysWhichCasesALimitDoesNotJudge) {
  const auto left = [](std::vector<Item> cases) {
    compare_with(some_baseline(), perf_config(), cases);
    return left_unjudged(some_baseline(), cases);
  };
  EXPECT_EQ(left(named({"a", "b"})), "");
  EXPECT_EQ(left(named({"a", "new", "newer"})),
            "--max-ratio does not judge 2 of 3 cases: the baseline before.jsonl does not have them, such as new");
  EXPECT_EQ(refusal([&] { left(named({"new"})); }),
            "the baseline before.jsonl has none of the cases, such as new: --max-ratio has nothing to judge");
}

TEST(Comparison, RefusesTimesOfAnotherDeviceOrOfGraphs) {
  std::vector<Item> cases = named({"a", "b"});
  PerfBaseline baseline = some_baseline();
  EXPECT_THAT(refusal([&] { compare_with(baseline, perf_config("cuda"), cases); }),
              EndsWith("a has device cpu there and cuda here (2 of 2 cases differ)"));
  for (auto& [id, entry] : baseline.cases) entry.device = "";
  EXPECT_EQ(refusal([&] { compare_with(baseline, perf_config("cuda"), cases); }), "no error");
  EXPECT_THAT(refusal([&] { compare_with(baseline, perf_config("cuda", true), cases); }),
              HasSubstr("a has --graph here and not there (2 of 2"));
  baseline.cases.at("b").graph = true;
  EXPECT_THAT(refusal([&] { compare_with(baseline, perf_config(), cases); }),
              HasSubstr("b has --graph there and not here (1 of 2"));
}

Item case_of(const std::string& model, const std::string& id) {
  Item named{{.id = id}};
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
  const Item b{{.id = "b"}};
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
  const std::vector<Item> cases = {{{.id = "a"}}, {{.id = "b"}}};
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
