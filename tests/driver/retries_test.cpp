// Cases that do not pass and are run again (--retries): which outcomes are retried, which events the run emits, and
// that the ledger stays exact.
#include <gmock/gmock.h>

#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using namespace ::testing;

RunConfig with_retries(int most, const std::vector<std::string>& options = {}) {
  RunConfig config = fake_config(options);
  config.retries.most = most;
  return config;
}

std::vector<std::string> tried(const Recorder& recorder) {
  std::vector<std::string> out;
  for (const CaseTried& event : recorder.all<CaseTried>()) {
    out.push_back(event.id + " " + std::string(to_string(event.outcome)));
  }
  return out;
}

TEST(Retries, MakeACaseThatPassesAfterACrashFlaky) {
  const TemporaryPath starts("starts");
  RunConfig config = with_retries(2, {"--starts=" + starts.get().string()});
  const Recorder recorder = run(fake_cases({"pass", "exits_at_first", "pass"}), config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass", "pass"));
  EXPECT_THAT(tried(recorder), ElementsAre("fake/exits_at_first crash"));
  const CaseFinished& flaky = recorder.finished(1);
  EXPECT_TRUE(flaky.flaky);
  EXPECT_EQ(flaky.attempts, 2);
  EXPECT_FALSE(recorder.finished(0).flaky);
  const CaseTried first = recorder.all<CaseTried>().at(0);
  EXPECT_EQ(first.index, 1U);
  EXPECT_EQ(first.attempts, 1);
  EXPECT_EQ(first.pool->generation, 1);
  EXPECT_THAT(first.reason, HasSubstr("exit 3"));
  EXPECT_THAT(first.stderr_tails, SizeIs(2)) << "what its ranks said is kept";
  EXPECT_TRUE(recorder.end().ledger_exact);
  EXPECT_EQ(recorder.end().flaky, 1U);
  EXPECT_EQ(recorder.end().exit_code, 0);
}

TEST(Retries, CanMakeAFlakyCaseAFailureToTheExitCode) {
  const TemporaryPath starts("starts");
  RunConfig config = with_retries(1, {"--starts=" + starts.get().string()});
  config.flaky_fails = true;
  Recorder recorder;
  EXPECT_EQ(run(fake_cases({"exits_at_first"}), config, recorder).exit_code, 100);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass"));
}

TEST(Retries, EndWithTheOutcomeOfTheLastTry) {
  RunConfig config = with_retries(2);
  config.max_failures = 3;  // a try that is repeated does not count as a failure
  std::vector<Item> cases = fake_cases({"hang", "exit3", "pass"});
  cases[0].timeout = std::chrono::milliseconds(300);
  const Recorder recorder = run(cases, config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("timeout", "crash", "pass"));
  EXPECT_THAT(tried(recorder),
              ElementsAre("fake/hang timeout", "fake/hang timeout", "fake/exit3 crash", "fake/exit3 crash"));
  EXPECT_EQ(recorder.finished(0).attempts, 3);
  EXPECT_EQ(recorder.end().flaky, 0U);
  EXPECT_TRUE(recorder.end().ledger_exact);
  EXPECT_EQ(recorder.end().exit_code, 100);
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(Retries, LeaveAWrongAnswerAloneUnlessItIsNamed) {
  const TemporaryPath counter("counter");
  RunConfig config = with_retries(1, {"--counter=" + counter.get().string()});
  const Recorder recorder = run(fake_cases({"fail", "pass"}), config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("fail", "pass"));
  EXPECT_THAT(tried(recorder), IsEmpty());
  config.retries.on = {CaseOutcome::fail};
  const Recorder named = run(fake_cases({"fails_one_in_three", "exit3"}), config);
  EXPECT_THAT(named.outcomes(), ElementsAre("pass", "crash"));
  EXPECT_THAT(tried(named), ElementsAre("fake/fails_one_in_three fail"));
}

TEST(Retries, OfAnErrorRunOnThePoolThatGoesOn) {
  const TemporaryPath counter("counter");
  const Recorder recorder =
      run(fake_cases({"errors_at_first", "pass"}), with_retries(1, {"--counter=" + counter.get().string()}));
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass"));
  EXPECT_TRUE(recorder.finished(0).flaky);
  EXPECT_THAT(recorder.all<PoolSpawned>(), SizeIs(1));
  EXPECT_EQ(recorder.all<PoolRetired>().at(0).cases, 3);
}

TEST(Retries, StartPoolsAnewForCasesThatNobodyCouldJudge) {
  const TemporaryPath starts("starts");
  RunConfig config = with_retries(1, {"--start=exit_1", "--bad-starts=3", "--starts=" + starts.get().string()});
  config.slots = 1;
  const Recorder recorder = run(fake_cases({"pass", "pass"}, 1), config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass"));
  EXPECT_THAT(tried(recorder), ElementsAre("fake/pass infra", "fake/pass infra"));
  EXPECT_EQ(recorder.end().flaky, 2U);
  EXPECT_TRUE(recorder.end().ledger_exact);
}

TEST(Retries, DoNotStartWhatCannotStart) {
  RunConfig config = with_retries(3);
  config.worker_command = {"/no/such/worker"};
  const Recorder recorder = run(fake_cases({"pass"}), config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("infra"));
  EXPECT_THAT(tried(recorder), IsEmpty());
  EXPECT_TRUE(recorder.end().ledger_exact);
}

TEST(Retries, EndWithTheRun) {
  RunConfig config = with_retries(1000000);
  config.global_timeout = std::chrono::milliseconds(1500) + 10 * time_of_a_pass(config);
  const Recorder recorder = run(fake_cases({"exit3"}), config);
  EXPECT_THAT(tried(recorder), testing::Not(IsEmpty()));
  EXPECT_TRUE(recorder.end().ledger_exact);
  EXPECT_EQ(recorder.end().exit_code, 100);
}

}  // namespace
}  // namespace cp_pool::driver_test
