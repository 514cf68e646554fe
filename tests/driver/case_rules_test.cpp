// How a case ends, and what is reported about it, if its worker dies, does not read its requests or breaks the
// protocol.
#include <atomic>
#include <csignal>

#include <gmock/gmock.h>

#include "driver/testing/attention.h"
#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using std::chrono::milliseconds;
using namespace ::testing;

TEST(Case, WhosePoolDiesBeforeItStartsIsSentOnceMore) {
  const TemporaryPath starts("starts");
  const Recorder recorder =
      run(fake_cases({"die_before_started_once", "pass"}), fake_config({"--starts=" + starts.get().string()}));
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass"));
  EXPECT_EQ(recorder.finished(0).attempts, 2);
  EXPECT_THAT(recorder.all<CaseStarted>(), SizeIs(3));
  EXPECT_THAT(recorder.retirements(), ElementsAre("crash", "finished"));
  EXPECT_EQ(recorder.all<PoolRetired>()[0].cases, 0);
}

TEST(Case, WhosePoolDiesTwiceBeforeItStartsIsACrash) {
  for (const std::string model : {"die_before_started", "garbage_before_started"}) {
    const Recorder recorder = run(fake_cases({model, "pass"}));
    EXPECT_THAT(recorder.outcomes(), ElementsAre("crash", "pass")) << model;
    EXPECT_EQ(recorder.finished(0).attempts, 2);
    EXPECT_THAT(recorder.finished(0).reason, HasSubstr("before the case had started"));
    EXPECT_THAT(recorder.all<PoolReady>(), SizeIs(3));
  }
}

TEST(Case, IsReportedWithAllThatItsWorkerSaidOfItCleaned) {
  const Recorder recorder = run(fake_cases({"full_result"}));
  const CaseFinished& finished = recorder.finished(0);
  EXPECT_EQ(finished.ranks.at(1).error, "\\x1b[31man error");
  EXPECT_EQ(finished.checks.at(0).tensor, "\\x1b[31mdq");
  EXPECT_EQ(finished.checks.at(0).message, "\\x1b[31ma message");
  EXPECT_EQ(finished.backend, "\\x1b[31ma backend");
  EXPECT_EQ(finished.backend_note, "\\x1b[31ma note");
  EXPECT_EQ(finished.timings_ms.at("forward"), 1.5);
  ASSERT_THAT(finished.hygiene, SizeIs(2));
  EXPECT_EQ(finished.hygiene[1].fds, 1010);
}

TEST(Case, ThatItsWorkerNeverReadsEndsAtItsDeadline) {
  Item large = fake_case("pass");
  test::attention(large.payload).seqlens =
      std::vector<std::int64_t>(100000, 1);  // a request that is larger than a pipe holds
  large.timeout = milliseconds(1000);
  const Recorder recorder = run({fake_case("stops_reading"), large, fake_case("pass")});
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "timeout", "pass"));
  EXPECT_THAT(recorder.finished(1).reason, HasSubstr("rank 0 has not read its request"));
  EXPECT_THAT(recorder.retirements(), ElementsAre("stdin_broken", "finished"));
}

TEST(Tail, IsMarkedWhenItsFenceIsMissing) {
  const Recorder recorder = run(fake_cases({"pass", "no_fence", "error"}));
  EXPECT_FALSE(recorder.finished(1).stderr_tails.at(0).fenced);
  EXPECT_FALSE(recorder.finished(2).stderr_tails.at(0).fenced);  // it may contain lines of the case before
  EXPECT_TRUE(recorder.finished(0).stderr_tails.empty());
}

TEST(Tail, OfATimeoutHoldsWhereEachRankStood) {
  RunConfig config = fake_config();
  config.timeout = milliseconds(1000);
  config.stack_wait = milliseconds(1000);
  const Recorder recorder = run(fake_cases({"hang@1"}), config);
  for (const StderrTail& tail : recorder.finished(0).stderr_tails) {
    EXPECT_THAT(tail.text, HasSubstr("starts hang@1 seq 1\nstack of this rank\n")) << tail.rank;
  }
}

TEST(Tail, IsCleaned) {
  const Recorder recorder = run(fake_cases({"invalid_utf8"}));
  EXPECT_THAT(recorder.finished(0).stderr_tails.at(0).text, HasSubstr("bad \uFFFD\uFFFD bytes and \\x1b[31mcolour"));
  EXPECT_TRUE(recorder.finished(0).stderr_tails.at(0).fenced);
}

class BusyRank : public testing::TestWithParam<int> {};

// Kills a rank in the middle of a case in which rank 0 hangs. Returns whether the case is reported soon: within the 50
// ms that the driver waits for the result of a living rank 0, plus ten times the start of the pool on this machine.
bool busy_rank_is_seen_dead_soon(int rank) {
  const TemporaryPath folder("busy");
  RunConfig config = fake_config();
  config.run_dir = folder.get();
  Recorder recorder;
  std::atomic<int> pid = 0;
  std::atomic<std::chrono::steady_clock::time_point> killed;
  std::chrono::steady_clock::time_point seen;
  double start_ms = 0;
  recorder.on_each = [&](const Event& event) {
    if (const auto* spawned = std::get_if<PoolSpawned>(&event)) pid = spawned->pids.at(static_cast<std::size_t>(rank));
    if (const auto* ready = std::get_if<PoolReady>(&event)) start_ms = ready->spawn_to_ready_ms;
    if (std::holds_alternative<CaseFinished>(event)) seen = std::chrono::steady_clock::now();
  };
  const auto log = folder.get() / "pools" / "cpu-2-gen1" / "rank1.stderr.log";
  const std::jthread killer = when_logged(log, "starts hang", [&] {
    killed = std::chrono::steady_clock::now();
    ::kill(pid, SIGKILL);
  });
  run(fake_cases({"hang"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("crash"));
  return ms_between(killed, seen) < 50 + 10 * start_ms;
}

TEST_P(BusyRank, IsSeenDeadSoon) {
  // A busy machine may delay a single try.
  bool seen_soon = false;
  for (int i = 0; i < 10 && !seen_soon; ++i) seen_soon = busy_rank_is_seen_dead_soon(GetParam());
  EXPECT_TRUE(seen_soon);
}

INSTANTIATE_TEST_SUITE_P(Ranks, BusyRank, testing::Values(0, 1));

}  // namespace
}  // namespace cp_pool::driver_test
