#include "driver/report/notices.h"

#include <gmock/gmock.h>

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

TEST(Notices, SayWhatAnInterruptedRunWaitsForAndHowItEndsAtOnce) {
  const PoolSpawned spawned{{"cpu/2", 1}, 2, {70, 71}};
  const RunStopping stopping{.reason = RunStopping::Reason::interrupted, .limit_ms = 15000};
  EXPECT_THAT(notices_of({spawned, spawned, started(0, "gone"), test::finished(0, "gone", CaseOutcome::pass),
                          started(4, "b"), started(1, "a"), stopping}),
              ElementsAre("interrupted: no further case is started; waiting for b and 1 more case to be cancelled and "
                          "2 pools to end, 15.0 s at most (3 x --grace); a second Ctrl-C kills them at once"));
  EXPECT_THAT(notices_of({spawned, stopping}),
              ElementsAre("interrupted: no further case is started; waiting for 1 pool to end, 15.0 s at most (3 x "
                          "--grace); a second Ctrl-C kills them at once"));
  EXPECT_THAT(notices_of({spawned, test::pool_retired(RetireReason::finished), stopping}),
              ElementsAre("interrupted: no further case is started"));
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

}  // namespace
}  // namespace cp_pool
