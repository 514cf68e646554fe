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

FailedCases failed_in(const std::vector<Event>& events) {
  const TemporaryFolder folder;
  {
    JsonlSink sink{folder / "e"};
    for (const Event& event : events) sink.on_event(event);
  }
  return read_failed_cases(folder / "e");
}

std::string error_for(const std::string& text) {
  const TemporaryFolder folder;
  write_file(folder / "e", text);
  return test::command_error(ExitCode::bad_input, [&] { read_failed_cases(folder / "e"); });
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
  const TemporaryFolder folder;
  write_file(folder / "e", "{\"type\":\"run_started\"}\n" + fail_of("a") + R"({"type":"case_finished","id":"b","outc)");
  const FailedCases failed = read_failed_cases(folder / "e");
  EXPECT_THAT(failed.ids, ElementsAre("a"));
  EXPECT_TRUE(failed.unknown_rest);
}

TEST(FailedCases, OfFilesThatWereJoinedInTheMiddleOfALineAreThoseOfBoth) {
  const TemporaryFolder folder;
  const std::string joined = R"({"v":1,"ts":"T","type":"run_started","ids":["a","b"]})"
                             "\n"
                             R"({"v":1,"ts":"T","type":"case_finished","id":"a","outc)"
                             R"({"v":1,"ts":"T","type":"run_started","ids":["c"]})"
                             "\n";
  write_file(folder / "e", joined + fail_of("c"));
  EXPECT_THAT(read_failed_cases(folder / "e").ids, ElementsAre("a", "b", "c"));
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
  EXPECT_THAT(error_for("{\"type\":\"run_started\"}\nhello\n"),
              AllOf(HasSubstr("is no events file"), HasSubstr("line 2")));
  EXPECT_THAT(error_for("{\"type\":\"case_finished\",\"id\":\"a\"}\n"), HasSubstr("line 1"));
  EXPECT_THAT(error_for("{}\n"), HasSubstr("holds no run"));
  EXPECT_THAT(error_for("{\"v\":2,\"type\":\"run_started\"}\n"),
              AllOf(HasSubstr("line 1"), HasSubstr("version 2, and this cp-pool reads 1")));
}

std::filesystem::path events_file(const TemporaryFolder& folder, const std::vector<Event>& events) {
  JsonlSink sink{folder / "events.jsonl"};
  for (const Event& event : events) sink.on_event(event);
  return folder / "events.jsonl";
}

std::string refusal(const std::function<void()>& action) {
  return test::command_error(ExitCode::bad_input, action);
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
  for (const std::string& id : ids) out.push_back({.id = id, .payload = c});
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

}  // namespace

}  // namespace cp_pool::test
