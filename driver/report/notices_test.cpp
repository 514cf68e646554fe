#include "driver/report/notices.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Returns each notice as "KIND: TEXT".
std::vector<std::string> notices_of(const std::vector<Event>& events, bool errors = true) {
  std::vector<std::string> out;
  Notices notices{
      [&](std::string_view kind, const std::string& text) { out.push_back(std::string{kind} + ": " + text); }, errors};
  for (const Event& event : events) notices.on_event(event);
  return out;
}

CaseStarted started(std::size_t index, const std::string& id) {
  return {.index = index, .id = id, .seq = 1, .pool = {"cpu/2", 1}, .attempt = 1};
}

CaseProgress progress(std::size_t index, const std::string& id, const std::string& phase, bool slow) {
  return {.index = index,
          .id = id,
          .seq = 1,
          .pool = {"cpu/2", 3},
          .phase = phase,
          .running_ms = 10000,
          .timeout_ms = 90000,
          .slow = slow};
}

TEST(Notices, SayEachTimeThatACaseIsSlowAndInWhichPhase) {
  EXPECT_THAT(
      notices_of({started(0, "a"), progress(0, "a", "forward", false), progress(0, "a", "forward", true),
                  progress(0, "a", "", true)}),
      ElementsAre("slow: a has been running for 10.0 s on pool cpu/2 #3, in forward; its deadline is 1 m 30 s "
                  "(--timeout)",
                  "slow: a has been running for 10.0 s on pool cpu/2 #3, no phase reported; its deadline is 1 m 30 s "
                  "(--timeout)"));
}

TEST(Notices, SayWhatAnInterruptedRunWaitsForAndHowItEndsAtOnce) {
  const PoolSpawned spawned{{"cpu/2", 1}, 2, {70, 71}};
  const RunStopping stopping{.reason = RunStopping::Reason::interrupted, .limit_ms = 15000};
  EXPECT_THAT(notices_of({spawned, spawned, started(0, "gone"), test::finished(0, "gone", CaseOutcome::pass),
                          started(4, "b"), started(1, "a"), progress(4, "b", "reference", false), stopping,
                          RunStopping{.reason = RunStopping::Reason::killed}}),
              ElementsAre("interrupted: no further case is started; waiting for b (in reference) and 1 more case to be "
                          "cancelled and 2 pools to end, 15.0 s at most (3 x --grace); a second Ctrl-C kills them at "
                          "once",
                          "interrupted: again: the ranks are killed at once"));
  EXPECT_THAT(notices_of({spawned, stopping}),
              ElementsAre("interrupted: no further case is started; waiting for 1 pool to end, 15.0 s at most (3 x "
                          "--grace); a second Ctrl-C kills them at once"));
  EXPECT_THAT(notices_of({spawned, test::pool_retired(RetireReason::finished), stopping}),
              ElementsAre("interrupted: no further case is started"));
}

TEST(Notices, SayWhatARunWaitsForWhoseTimeIsOver) {
  EXPECT_THAT(
      notices_of({started(0, "a"), RunStopping{.reason = RunStopping::Reason::global_timeout, .limit_ms = 600}}),
      ElementsAre("stopped: the time of the run is over (--global-timeout); waiting for a to be cancelled, 600 "
                  "ms at most (3 x --grace)"));
}

TEST(Notices, SayWhatARoundWaitsForWhoseFilesHaveChanged) {
  const RunStopping stopping{.reason = RunStopping::Reason::outdated, .limit_ms = 600};
  EXPECT_THAT(notices_of({started(0, "a"), stopping}),
              ElementsAre("stopped: what the ranks run has changed; waiting for a to be cancelled, 600 ms at most (3 x "
                          "--grace)"));
  EXPECT_THAT(notices_of({stopping}), IsEmpty());
}

TEST(Notices, SayOnceWhyCasesWereNotJudgedUnlessTheTerminalDoes) {
  const std::vector<Event> events{test::finished(0, "a", CaseOutcome::infra, "no\nworker"),
                                  test::finished(1, "b", CaseOutcome::infra, "no\nworker")};
  EXPECT_THAT(notices_of(events), ElementsAre("error: no worker"));
  EXPECT_THAT(notices_of(events, false), IsEmpty());
}

TEST(Notices, SayWhyRanksAreNotForked) {
  EXPECT_THAT(notices_of({ForkServerTold{.ready = true, .reason = ""}}, true), IsEmpty());
  EXPECT_THAT(notices_of({ForkServerTold{.ready = true, .pid = 1, .start_ms = 0, .reason = "a thread"}}, true),
              ElementsAre("warning: each rank imports the adapter by itself: a thread"));
  EXPECT_THAT(notices_of({ForkServerTold{.ready = false, .pid = 1, .start_ms = 0, .reason = "why"}}, true),
              ElementsAre("warning: ranks are started one by one: why"));
}

TEST(Notices, NameAnOutputThatIsLost) {
  EXPECT_THAT(notices_of({OutputLost{"--run-dir", "cannot write a: why\nb"}}, false),
              ElementsAre("error: --run-dir: cannot write a: why b"));
}

}  // namespace
}  // namespace cp_pool
