// Triage of failures: the verdicts on cases whose workers leak state on purpose, fail now and then, or crash.
#include <csignal>

#include <gmock/gmock.h>

#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using namespace ::testing;

RunConfig with_triage(const std::vector<std::string>& options = {}) {
  RunConfig config = fake_config(options);
  config.triage = true;
  return config;
}

Verdict verdict_on(const Recorder& recorder, const std::string& id) {
  for (const CaseVerdict& event : recorder.all<CaseVerdict>()) {
    if (event.id == id) return event.verdict;
  }
  ADD_FAILURE() << "no verdict on " << id;
  return {};
}

std::string kind_of(const Verdict& verdict) {
  return std::string(name_of(verdict.kind));
}

TEST(Triage, CallsAFailureRealThatFailsAlone) {
  const Recorder recorder = run(fake_cases({"pass", "fail", "pass"}), with_triage());
  const Verdict verdict = verdict_on(recorder, "fake/fail");
  EXPECT_EQ(kind_of(verdict), "REAL");
  EXPECT_EQ(verdict.k, 2);
  EXPECT_EQ(verdict.n, 2);
  EXPECT_THAT(recorder.all<CaseReplayed>(), SizeIs(2));
  EXPECT_THAT(recorder.all<CaseFinished>(), SizeIs(3)) << "a replay is no case of the run";
  EXPECT_TRUE(recorder.end().ledger_exact);
  EXPECT_EQ(recorder.end().exit_code, 100);
  EXPECT_TRUE(std::holds_alternative<RunFinished>(recorder.events.back()));
  std::vector<int> generations;
  for (const CaseReplayed& event : recorder.all<CaseReplayed>()) generations.push_back(event.pool->generation);
  EXPECT_THAT(generations, ElementsAre(2, 3)) << "each on a pool of its own";
  EXPECT_THAT(recorder.all<PoolRetired>(), SizeIs(3));
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(Triage, NamesTheCaseThatLeftSomethingBehind) {
  for (const std::string what : {"seed", "variable", "group", "plan"}) {
    const Recorder recorder =
        run(fake_cases({"pass", "leaves_" + what, "skip", "pass", "uses_" + what, "pass"}), with_triage());
    EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass", "skip", "pass", "fail", "pass"));
    const Verdict verdict = verdict_on(recorder, "fake/uses_" + what);
    EXPECT_EQ(kind_of(verdict), "STATE_LEAK") << what;
    EXPECT_EQ(verdict.culprit, "fake/leaves_" + what);
    EXPECT_EQ(verdict.k, 2);
    EXPECT_EQ(verdict.n, 2);
    EXPECT_THAT(verdict.evidence,
                Contains(HasSubstr("alone on a fresh pool, the case failed in the same way in 0 of 3 replays")));
  }
}

TEST(Triage, SaysThatAFailureNeedsAWarmPoolWhereNoSingleCaseMakesIt) {
  const Recorder memory = run(fake_cases({"leaves_memory", "pass", "leaves_memory", "uses_memory"}), with_triage());
  const Verdict verdict = verdict_on(memory, "fake/uses_memory");
  EXPECT_EQ(kind_of(verdict), "WARM_ONLY");
  EXPECT_FALSE(verdict.culprit);
  const Recorder third = run(fake_cases({"pass", "skip", "fails_as_third"}), with_triage());
  EXPECT_EQ(kind_of(verdict_on(third, "fake/fails_as_third")), "WARM_ONLY");
}

TEST(Triage, CallsACaseFlakyThatFailsOneTimeInThree) {
  const TemporaryPath counter("counter");
  const Recorder recorder =
      run(fake_cases({"pass", "fails_one_in_three"}), with_triage({"--counter=" + counter.get().string()}));
  const Verdict verdict = verdict_on(recorder, "fake/fails_one_in_three");
  EXPECT_EQ(kind_of(verdict), "FLAKY");
  EXPECT_EQ(verdict.k, 1);
  EXPECT_EQ(verdict.n, 3);
}

TEST(Triage, OfATryThatFailedAndPassedLaterHasNothingToSay) {
  const TemporaryPath counter("counter");
  RunConfig config = with_triage({"--counter=" + counter.get().string()});
  config.retries.most = 1;
  const Recorder recorder = run(fake_cases({"errors_at_first"}), config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass"));
  EXPECT_THAT(recorder.all<CaseVerdict>(), IsEmpty());
}

TEST(Triage, OfHangsAndCrashesTriagesTheCheaperFirst) {
  RunConfig config = with_triage();
  config.timeout = std::chrono::milliseconds(700);
  const Recorder recorder = run(fake_cases({"hang", "sigsegv@1", "exit3"}), config);
  std::vector<std::string> ids;
  for (const CaseVerdict& event : recorder.all<CaseVerdict>()) {
    ids.push_back(event.id);
    EXPECT_EQ(kind_of(event.verdict), "REAL");
  }
  ASSERT_THAT(ids, SizeIs(3));
  EXPECT_EQ(ids.back(), "fake/hang");
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(Triage, EndsWithItsBudgetAndSaysSo) {
  RunConfig config = with_triage();
  config.triage_limits.replays = 3;
  const Recorder recorder = run(fake_cases({"fail", "error", "exit3"}), config);
  EXPECT_THAT(recorder.all<CaseReplayed>(), SizeIs(3));
  std::vector<std::string> kinds;
  for (const CaseVerdict& event : recorder.all<CaseVerdict>()) kinds.push_back(kind_of(event.verdict));
  EXPECT_THAT(kinds, ElementsAre("REAL", "not triaged", "not triaged"));
}

TEST(Triage, EndsWithItsTimeInTheMiddleOfAReplay) {
  RunConfig config = with_triage();
  config.timeout = std::chrono::milliseconds(900);
  config.triage_limits.time = std::chrono::milliseconds(300);
  const Recorder recorder = run(fake_cases({"hang"}), config);
  const Verdict verdict = verdict_on(recorder, "fake/hang");
  EXPECT_EQ(kind_of(verdict), "not triaged");
  EXPECT_THAT(verdict.evidence, Contains(HasSubstr("for a triage was reached")));
  EXPECT_THAT(recorder.all<CaseReplayed>(), IsEmpty()) << "its deadline was not that of the case";
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(Triage, EndsWhenTheRunIsInterrupted) {
  RunConfig config = with_triage();
  Recorder recorder;
  recorder.on<CaseReplayed>([](const CaseReplayed&) { ::raise(SIGINT); });
  const RunFinished finished = run(fake_cases({"fail", "exit3"}), config, recorder);
  EXPECT_EQ(finished.exit_code, 130);
  EXPECT_TRUE(finished.ledger_exact);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("fail", "crash"));
  ASSERT_THAT(recorder.all<CaseVerdict>(), SizeIs(2));
  for (const CaseVerdict& event : recorder.all<CaseVerdict>()) EXPECT_EQ(kind_of(event.verdict), "not triaged");
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(Triage, LetsTheWorkerLookForNoCause) {
  const Recorder recorder = run(fake_cases({"diag_certain"}), with_triage({"--options=diagnosis_ms"}));
  for (const CaseReplayed& event : recorder.all<CaseReplayed>()) EXPECT_EQ(event.outcome, CaseOutcome::fail);
  EXPECT_EQ(kind_of(verdict_on(recorder, "fake/diag_certain")), "REAL");
}

TEST(Triage, IsUnknownWhereItsPoolsDoNotStart) {
  // The first pool starts. The pools of the replays do not, because the worker has been removed.
  const TemporaryPath worker("worker");
  RunConfig config = with_triage();
  std::filesystem::create_symlink(config.worker_command.front(), worker.get());
  config.worker_command.front() = worker.get().string();
  Recorder recorder;
  recorder.on<CaseFinished>([&](const CaseFinished&) { std::filesystem::remove(worker.get()); });
  run(fake_cases({"fail"}), config, recorder);
  const Verdict verdict = verdict_on(recorder, "fake/fail");
  EXPECT_EQ(kind_of(verdict), "unknown");
  EXPECT_THAT(verdict.evidence, Each(HasSubstr("a replay of the case alone could not be judged: it ended as infra")));
}

TEST(Triage, KeepsNothingOfARunThatDoesNotAskForIt) {
  const Recorder recorder = run(fake_cases({"fail"}));
  EXPECT_THAT(recorder.all<CaseReplayed>(), IsEmpty());
  EXPECT_THAT(recorder.all<CaseVerdict>(), IsEmpty());
}

}  // namespace
}  // namespace cp_pool::driver_test
