#include "driver/report/jsonl_sink.h"

#include <csignal>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cases/testing/temporary_folder.h"
#include "driver/log/events_json.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using test::read_file;
using test::TemporaryFolder;

std::vector<nlohmann::json> parse_lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(JsonlSink, EveryEventIsOneLineWithVersionTimeAndType) {
  const TemporaryFolder folder;
  JsonlSink sink{folder / "events.jsonl"};
  sink.on_event(test::run_started(1));
  sink.on_event(test::pool_ready());
  sink.on_event(test::finished(0, "id", CaseOutcome::pass));
  sink.on_event(test::run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0}));

  const auto lines = parse_lines(read_file(folder / "events.jsonl"));  // read while the sink is still open
  ASSERT_EQ(lines.size(), 4U);
  for (const auto& line : lines) {
    EXPECT_EQ(line["v"], 1);
    EXPECT_THAT(line["ts"].get<std::string>(),
                ::testing::MatchesRegex(R"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z)"));
  }
  EXPECT_EQ(lines[0]["type"], "run_started");
  EXPECT_EQ(lines[3]["type"], "run_finished");
}

TEST(JsonlSink, TheFileIsReadableUpToTheLastLineAfterSigkill) {
  const TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    JsonlSink sink{folder / "events.jsonl"};
    for (std::size_t i = 0;; ++i) {
      sink.on_event(test::failed_case(i, "id"));
      if (i == 20 && ::write(ready[1], "x", 1) != 1) ::_exit(1);
    }
  }
  ::close(ready[1]);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));

  const std::string text = read_file(folder / "events.jsonl");
  EXPECT_EQ(text.back(), '\n');
  EXPECT_GT(parse_lines(text).size(), 20U);
}

TEST(JsonlSink, AFullDiskIsAnError) {
  JsonlSink sink{"/dev/full"};
  EXPECT_THROW(sink.on_event(test::run_started(1)), OutputError);
}

TEST(UtcTimestamp, IsIso8601WithMilliseconds) {
  using std::chrono::milliseconds;
  EXPECT_EQ(utc_timestamp(std::chrono::system_clock::time_point{milliseconds{1769843289007}}),
            "2026-01-31T07:08:09.007Z");
}

}  // namespace
}  // namespace cp_pool
