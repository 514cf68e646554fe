#include "driver/reporters/perf_baseline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/temporary_folder.h"
#include "driver/reporters/example_events.h"
#include "driver/reporters/jsonl_sink.h"

namespace cp_pool {
namespace {

using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::filesystem::path events_file(const TemporaryFolder& folder, const std::vector<Event>& events) {
  JsonlSink sink{folder / "events.jsonl"};
  for (const Event& event : events) sink.on_event(event);
  return folder / "events.jsonl";
}

std::string error_of(const std::filesystem::path& file) {
  try {
    read_perf_baseline(file);
  } catch (const BaselineError& e) {
    return e.what();
  }
  return "no error";
}

TEST(PerfBaseline, HasTheTimesOfAnEventsFile) {
  const TemporaryFolder folder;
  const auto file =
      events_file(folder, {test::run_started(3), test::timed_case(0, "a", 2.5), test::timed_case(1, "b", 3),
                           test::finished(2, "untimed", CaseOutcome::pass), test::timed_case(3, "a", 2.25)});
  const PerfBaseline baseline = read_perf_baseline(file);
  EXPECT_THAT(baseline.ms, ElementsAre(Pair("a", 2.25), Pair("b", 3)));
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
  test::write_file(folder / "empty", "");
  EXPECT_THAT(error_of(folder / "empty"), HasSubstr("empty has no times"));
  EXPECT_THAT(error_of(events_file(folder, {test::finished(0, "a", CaseOutcome::pass)})), HasSubstr("has no times"));
}

}  // namespace
}  // namespace cp_pool
