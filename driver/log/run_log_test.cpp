#include "driver/log/run_log.h"

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/cli/history/earlier_run.h"
#include "driver/log/events_json.h"
#include "driver/testing/command_error.h"

namespace cp_pool {
namespace {

using namespace ::testing;

std::string reading_error(const std::filesystem::path& file) {
  return test::command_error(ExitCode::bad_input, [&] { read_events(file, "the file", [](const Event&, auto) {}); });
}

// Returns the error about a file whose second line is `line`.
std::string error_of_line(const std::string& line) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "e", "{\"v\":1,\"type\":\"run_started\"}\n" + line + "\n");
  const std::string start =
      "the file " + (folder / "e").string() + " is no events file of cp-pool run --events: line 2";
  const std::string error = reading_error(folder / "e");
  EXPECT_THAT(error, StartsWith(start));
  return error.substr(start.size());
}

TEST(ReadEvents, ABadLineIsToldWithFieldAndValue) {
  const std::string pool = R"("pool":{"key":"cpu/2","generation":1})";
  EXPECT_EQ(error_of_line(R"({"type":"case_started","id":7,)" + pool + "}"),
            ": case_started: \"id\": expected a string, got 7");
  EXPECT_EQ(error_of_line(R"({"type":"case_started",)" + pool + "}"), ": case_started: \"id\" is missing");
  EXPECT_THAT(error_of_line(R"({"type":"pool_retired","reason":"finishd",)" + pool + "}"),
              AllOf(StartsWith(": pool_retired: \"reason\": \"finishd\" is not among finished, start_failed, "),
                    EndsWith("; did you mean 'finished'?")));
  EXPECT_EQ(error_of_line(R"({"type":"pool_spawned","world_size":"two",)" + pool + "}"),
            ": pool_spawned: \"world_size\": expected a 32-bit integer, got \"two\"");
  EXPECT_EQ(error_of_line(R"({"type":"run_started","ids":[1]})"), ": run_started: \"ids\": expected a string, got 1");
  EXPECT_EQ(error_of_line(R"({"type":"case_finished","id":"a","seq":1,"outcome":"pass","case":{"heads":"four"}})"),
            ": case: $.heads: \"four\" is not an integer");
  EXPECT_EQ(error_of_line(R"({"type":3})"), ": event: \"type\": expected a string, got 3");
  EXPECT_EQ(error_of_line(R"({"v":2,"type":"run_started"})"), " is of version 2, and this cp-pool reads 1");
  EXPECT_EQ(error_of_line(R"({"v":"x","type":"run_started"})"), " is of version \"x\", and this cp-pool reads 1");
}

TEST(ReadEvents, ABadLineIsToldWithItsColumnWhereItIsNoJson) {
  EXPECT_EQ(error_of_line("hello"), ": not JSON at column 1");
  EXPECT_EQ(error_of_line("[1]"), ": it is no JSON object");
  EXPECT_EQ(error_of_line(std::string{"{}\0{}", 5}), ": a NUL byte at column 3");
}

TEST(ReadEvents, EveryTextOfAFileIsCleanOnceItIsRead) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "e",
                   R"({"v":1,"ts":"2027-01-15T08:00:00.000Z","type":"run_started","title":"a\u001b[2Jb"})");
  std::string title;
  std::string at;
  read_events(folder / "e", "the file", [&](const Event& event, const auto& written) {
    title = std::get<RunStarted>(event).title;
    at = utc_timestamp(written.value());
  });
  EXPECT_EQ(title, "a\\x1b[2Jb");
  EXPECT_EQ(at, "2027-01-15T08:00:00.000Z");
}

TEST(ReadEvents, ToTheReaderOfFailuresToo) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "e", "{\"type\":\"case_finished\",\"id\":\"a\",\"outcome\":[]}\n");
  EXPECT_THAT(test::command_error(ExitCode::bad_input, [&] { read_failed_cases(folder / "e"); }),
              EndsWith("line 1: case_finished: \"outcome\": expected a string, got []"));
}

TEST(ReadEvents, WhatCannotBeReadIsNamed) {
  EXPECT_EQ(reading_error("/no/such"), "cannot read the file /no/such: No such file or directory");
  EXPECT_EQ(reading_error("/"), "cannot read the file /: it is a folder");
}

const CaseKey kA{.id = "a", .size = "small", .device = "cpu", .implementation = "own", .case_text = "{}"};

TEST(CountedRuns, TheLastRunOfACaseCounts) {
  CountedRuns runs;
  for (const std::size_t run : {0U, 3U, 1U}) runs.add(kA, run, true);
  runs.close();
  EXPECT_EQ(runs.counted(kA), 3U);
  EXPECT_EQ(runs.first(kA), 0U);
}

TEST(CountedRuns, CasesAreTheSameInAllThatMakesThemSo) {
  CountedRuns runs;
  std::vector<CaseKey> keys{kA, kA, kA, kA, kA};
  keys[1].id = "b";
  keys[2].size = "full";
  keys[3].device = "cuda";
  keys[4].case_text = "{\"heads\":4}";
  for (std::size_t run = 0; run < keys.size(); ++run) runs.add(keys[run], run, true);
  runs.close();
  for (std::size_t run = 0; run < keys.size(); ++run) EXPECT_EQ(runs.counted(keys[run]), run);
}

TEST(CountedRuns, ARunThatDidNotComeToTheCaseCountsWhereNoneDid) {
  CountedRuns runs;
  runs.add(kA, 0, true);
  runs.add(kA, 1, false);
  CaseKey other = kA;
  other.id = "b";
  runs.add(other, 0, false);
  runs.add(other, 1, false);
  runs.close();
  EXPECT_EQ(runs.counted(kA), 0U);
  EXPECT_EQ(runs.counted(other), 1U);
}

TEST(CountedRuns, ACaseOfWhichOnlyTheNamesAreKnownIsThatOfTheOtherRun) {
  CountedRuns runs;
  CaseKey unknown = kA;
  unknown.case_text.clear();
  runs.add(unknown, 0, false);
  runs.add(kA, 1, true);
  CaseKey alone = unknown;
  alone.id = "alone";
  runs.add(alone, 2, false);
  runs.close();
  EXPECT_EQ(runs.counted(unknown), 1U);
  EXPECT_EQ(runs.counted(kA), 1U);
  EXPECT_EQ(runs.first(kA), 0U);
  EXPECT_EQ(runs.counted(alone), 2U);
}

}  // namespace
}  // namespace cp_pool
