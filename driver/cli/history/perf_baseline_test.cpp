#include "driver/cli/history/perf_baseline.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"
#include "driver/core/exit_code.h"
#include "driver/report/jsonl_sink.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::filesystem::path events_file(const TemporaryFolder& folder, const std::vector<Event>& events) {
  JsonlSink sink{folder / "events.jsonl"};
  for (const Event& event : events) sink.on_event(event);
  return folder / "events.jsonl";
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const CommandError& e) {
    EXPECT_EQ(e.code(), ExitCode::bad_input);
    return e.what();
  }
  return "no error";
}

std::string error_of(const std::filesystem::path& file) {
  return refusal([&] { read_perf_baseline(file); });
}

TEST(PerfBaseline, HasTheTimesOfAnEventsFile) {
  const TemporaryFolder folder;
  const auto file =
      events_file(folder, {test::run_started(3), test::timed_case(0, "a", 2.5), test::timed_case(1, "b", 3),
                           test::finished(2, "untimed", CaseOutcome::pass), test::timed_case(3, "a", 2.25),
                           test::timed_case(4, "too fast for its clock", 0)});
  const PerfBaseline baseline = read_perf_baseline(file);
  ASSERT_THAT(baseline.cases, SizeIs(2));
  EXPECT_EQ(baseline.cases.at("a").ms, 2.25);
  EXPECT_EQ(baseline.cases.at("b").ms, 3);
  EXPECT_EQ(baseline.cases.at("b").payload, test::example_case());
  EXPECT_EQ(baseline.cases.at("b").device, "cpu");
  EXPECT_EQ(baseline.name, file.string());
}

TEST(PerfBaseline, SaysWhatIsWrongWithTheFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of(folder / "missing"), AllOf(HasSubstr("missing: No such file"), HasSubstr("cannot read")));
  EXPECT_THAT(error_of(folder / "."), HasSubstr("it is a folder"));
  test::write_file(folder / "text", "{\"type\":\"run_started\"}\nhello\n");
  EXPECT_THAT(error_of(folder / "text"), AllOf(HasSubstr("text is no events file"), HasSubstr("line 2")));
  test::write_file(folder / "list", "[1]\n");
  EXPECT_THAT(error_of(folder / "list"), HasSubstr("line 1"));
  test::write_file(folder / "case", R"({"type":"case_finished","id":"a","perf":{"ms":1},"case":{"heads":"four"}})");
  EXPECT_THAT(error_of(folder / "case"), HasSubstr("line 1"));
  test::write_file(folder / "empty", "");
  EXPECT_THAT(error_of(folder / "empty"), HasSubstr("empty has no times"));
  EXPECT_THAT(error_of(events_file(folder, {test::finished(0, "a", CaseOutcome::pass)})), HasSubstr("has no times"));
}

// --- Comparison ------------------------------------------------------------------------------------------------------

PerfBaseline some_baseline() {
  const PerfBaseline::Entry entry{.ms = 2.5, .payload = test::example_case(), .device = "cpu", .graph = false};
  return {.name = "before.jsonl", .cases = {{"a", entry}, {"b", entry}}};
}

RunConfig perf_config(const std::string& device = "cpu", bool graph = false) {
  RunConfig config;
  config.device = device;
  config.perf = protocol::PerfRequest{};
  config.perf->graph = graph;
  return config;
}

std::vector<Item> named(const std::vector<std::string>& ids, const Case& c = test::example_case()) {
  std::vector<Item> out;
  for (const std::string& id : ids) out.push_back({.id = id, .payload = c, .rerun = ""});
  return out;
}

TEST(Comparison, GivesEachCaseItsTimeInTheBaseline) {
  std::vector<Item> cases = named({"new", "a"});
  compare_with(some_baseline(), perf_config(), cases);
  EXPECT_EQ(cases[0].baseline_ms, std::nullopt);
  EXPECT_EQ(cases[1].baseline_ms, 2.5);
}

TEST(Comparison, RefusesABaselineOfAnotherProblemUnderTheSameId) {
  Case c = test::example_case();
  c.seqlen_q = 64;
  std::vector<Item> cases = named({"new", "b", "a"}, c);
  cases.back().payload = test::example_case();
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
}  // namespace cp_pool
