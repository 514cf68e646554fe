#include <cstdio>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "cases/testing/temporary_folder.h"
#include "driver/report/reports.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using nlohmann::json;
using ::testing::SizeIs;

// Returns the tracks of the file. check_trace.py also checks the file against the format that viewers read.
json tracks_of(const std::vector<Event>& events) {
  const TemporaryFolder folder;
  write_file(folder / "trace.json", trace_report(report_of(events)));
  const std::string command =
      std::string{"python3 '" CP_POOL_CHECK_TRACE "' '"} + (folder / "trace.json").string() + "'";
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << read_file(folder / "trace.json");
  return json::parse(text);
}

template <class E>
E at(double at_ms, E event) {
  event.at_ms = at_ms;
  return event;
}

PoolSpawned spawned(int generation) {
  return {.pool = {"cpu/2", generation}, .world_size = 2};
}

CaseStarted sent(std::size_t index, const std::string& id) {
  CaseStarted event;
  event.index = index;
  event.id = id;
  event.pool = {"cpu/2", 1};
  return event;
}

// The slowest ranks' 60 + 60 ms have to fit into 100 ms, in the order of a case.
TEST(RunTrace, PhasesStandInOrderAndWithinTheirCase) {
  CaseFinished pass = finished(0, "a", CaseOutcome::pass);
  pass.timings_ms = {{"backward", 60}, {"forward", 60}, {"diagnosis", 5}};
  const json tracks = tracks_of({run_started(1), at(0, spawned(1)), at(10, pool_ready()), at(10, sent(0, "a")),
                                 at(110, pass), run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0}, 120)});
  EXPECT_EQ(tracks["pool cpu/2 #1/phases (slowest rank)"],
            json::parse(R"([["phase", "forward", 10000, 60000], ["phase", "backward", 60000, 110000]])"));
}

TEST(RunTrace, ASlotPassesToAPoolThatStartedEarlyAfterTheLastCase) {
  PoolSpawned first = spawned(1);
  first.slots = {0};
  PoolSpawned second = spawned(2);
  second.slots = {0};
  CaseFinished finished = test::finished(0, "a", CaseOutcome::pass);
  finished.pool = first.pool;
  const json tracks =
      tracks_of({run_started(0), at(0, first), at(10, sent(0, "a")), at(20, second), at(50, finished),
                 at(60, pool_retired(RetireReason::finished, "")), run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0}, 210)});
  EXPECT_EQ(tracks["slots/slot 0"],
            json::parse(R"([["slot", "pool cpu/2 #1", 0, 50000], ["slot", "pool cpu/2 #2", 50000, 210000]])"));
}

TEST(RunTrace, EventsThatDoNotSayWhenAreLeftOut) {
  const json tracks = tracks_of({run_started(1), spawned(1), sent(0, "a"), finished(0, "a", CaseOutcome::pass),
                                 run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0})});
  EXPECT_EQ(tracks.size(), 1U);
  EXPECT_THAT(tracks_of({run_started(0), run_finished({0, 0, 0, 0, 0, 0, 0, 0, 0}, 0)})["run/run"], SizeIs(1));
}

}  // namespace
}  // namespace cp_pool::test
