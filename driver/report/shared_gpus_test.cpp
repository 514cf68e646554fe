// Every report says that ranks shared a GPU.
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"
#include "driver/log/events_json.h"
#include "driver/report/reports.h"
#include "driver/report/terminal_sink.h"
#include "driver/report/time_tables.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CaseFinished passed(int shared_gpus) {
  CaseFinished event = test::finished(0, "a", CaseOutcome::pass);
  event.shared_gpus = shared_gpus;
  return event;
}

std::vector<Event> run_on(int shared_gpus) {
  RunStarted started = test::run_started(1);
  started.device = "cuda";
  started.shared_gpus = shared_gpus;
  PoolReady ready = test::pool_ready();
  ready.ready.capabilities = {{"shared_gpus", shared_gpus}};
  return {started, ready, passed(shared_gpus), test::run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0})};
}

std::string shown(const std::vector<Event>& events) {
  const test::TemporaryFolder folder;
  const int fd = ::open((folder / "out").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  {
    TerminalSink sink{fd, {}};
    for (const Event& event : events) sink.on_event(event);
  }
  ::close(fd);
  return test::read_file(folder / "out");
}

TEST(SharedGpus, AreInTheFirstLineThePoolsLineAndTheSummary) {
  const std::string text = shown(run_on(1));
  EXPECT_THAT(text, HasSubstr(" on cuda (ranks share 1 GPU), implementation: own\n"));
  EXPECT_THAT(text, HasSubstr(", 2 ranks that share 1 GPU\n"));
  EXPECT_THAT(text, HasSubstr("1 case with ranks that shared a GPU\n"));
  EXPECT_THAT(shown(run_on(3)), HasSubstr("2 ranks that share 3 GPUs\n"));
}

TEST(SharedGpus, AreInJUnitAndHtml) {
  EXPECT_THAT(junit_report(test::report_of(run_on(2))), HasSubstr("[[PROPERTY|shared_gpus=2]]"));
  EXPECT_THAT(html_report(test::report_of(run_on(2))), HasSubstr("ranks share 2 GPUs"));
}

TEST(SharedGpus, AreMarkedInTheTableOfTimes) {
  CaseFinished timed = test::timed_case(0, "a", 2);
  timed.shared_gpus = 1;
  PerfTable table;
  table.add(timed);
  table.add(test::timed_case(1, "b", 2));
  EXPECT_THAT(table.text(), HasSubstr("  a (shared GPU)\n"));
  EXPECT_THAT(table.text(), HasSubstr("  b\n"));
  EXPECT_THAT(table.text(), HasSubstr("1 case with ranks that shared a GPU: "));
}

TEST(SharedGpus, AreNotMentionedWhereEachRankHasADevice) {
  for (const std::string& text :
       {shown(run_on(0)), html_report(test::report_of(run_on(0))), junit_report(test::report_of(run_on(0)))}) {
    EXPECT_THAT(text, Not(HasSubstr("share")));
  }
}

TEST(SharedGpus, AreReadBackFromEvents) {
  for (const Event& event : run_on(2)) {
    const auto read = read_event(nlohmann::json::parse(to_line(event_json(event))));
    ASSERT_TRUE(read);
    if (const auto* started = std::get_if<RunStarted>(&*read)) {
      EXPECT_EQ(started->shared_gpus, 2);
    }
    if (const auto* ready = std::get_if<PoolReady>(&*read)) {
      EXPECT_EQ(protocol::shared_gpus(ready->ready), 2);
    }
    if (const auto* finished = std::get_if<CaseFinished>(&*read)) {
      EXPECT_EQ(finished->shared_gpus, 2);
    }
  }
}

// A worker that others wrote may send anything.
TEST(SharedGpus, AreANumberOrNone) {
  protocol::ReadyEvent ready;
  EXPECT_EQ(protocol::shared_gpus(ready), 0);
  for (const nlohmann::json& nonsense : {nlohmann::json("yes"), nlohmann::json(-1), nlohmann::json(1.5)}) {
    ready.capabilities = {{"shared_gpus", nonsense}};
    EXPECT_EQ(protocol::shared_gpus(ready), 0) << nonsense;
  }
}

}  // namespace
}  // namespace cp_pool
