// When a pool is replaced, a case is sent again, and a key or a run is given up.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/process/process_tree.h"
#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using std::chrono::milliseconds;
using testing::AnyOf;
using testing::Each;
using testing::ElementsAre;
using testing::EndsWith;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

double ms_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

TEST(Pool, KeepsItsWorkersWarmFromCaseToCase) {
  Recorder recorder;
  const RunFinished finished = run(fake_cases({"pass", "skip", "pass", "fail", "pass"}), fake_config(), recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "skip", "pass", "fail", "pass"));
  EXPECT_THAT(recorder.all<PoolReady>(), SizeIs(1));
  ASSERT_THAT(recorder.all<PoolRetired>(), SizeIs(1));
  EXPECT_EQ(recorder.all<PoolRetired>()[0].cases, 5);
  EXPECT_THAT(recorder.all<PoolRetired>()[0].exits, SizeIs(2));
  EXPECT_EQ(recorder.all<PoolRetired>()[0].exits[1].status, "exit 0");
  EXPECT_EQ(finished.exit_code, 100);
}

TEST(Pool, GivesEverySentCaseItsOwnSeq) {
  Recorder recorder;
  run({fake_case("pass", 1), fake_case("sigkill", 2), fake_case("pass", 1), fake_case("pass", 2)}, fake_config(),
      recorder);
  std::vector<std::int64_t> seqs;
  for (const CaseStarted& started : recorder.all<CaseStarted>()) seqs.push_back(started.seq);
  EXPECT_THAT(seqs, ElementsAre(1, 2, 3, 4));
}

TEST(Pool, ThatWasAskedForTimesAndGivesNoneEndsACaseAsError) {
  Recorder recorder;
  RunConfig config = fake_config();
  config.perf = protocol::PerfRequest{};
  run(fake_cases({"pass", "skip", "fail"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("error", "skip", "fail"));
  EXPECT_EQ(recorder.finished(0).reason, "the case passed, but the worker gave no times (--mode perf asks for them)");
  EXPECT_THAT(recorder.finished(0).stderr_tails, SizeIs(2));
  EXPECT_THAT(recorder.retirements(), ElementsAre("finished"));
}

TEST(Pool, ThatPromisesFiguresIsBelievedNoPassWithoutThem) {
  Recorder recorder;
  run(fake_cases({"pass_within_bound", "pass", "pass_within_bound", "skip"}), fake_config({"--figures"}), recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "error", "pass", "skip"));
  EXPECT_EQ(recorder.finished(1).reason,
            "a result \"pass\" without a check of ranks 0, 1 (the worker promises figures)");
  EXPECT_THAT(recorder.retirements(), ElementsAre("protocol_break", "finished"));
  EXPECT_EQ(recorder.finished(2).pool->generation, 2);
}

TEST(Pool, WhoseFiguresDenyItsPassShowsThemAsWrong) {
  Recorder recorder;
  run(fake_cases({"pass_beyond_bound"}), fake_config(), recorder);
  const CaseFinished finished = recorder.finished(0);
  ASSERT_THAT(finished.checks, SizeIs(2));
  EXPECT_TRUE(finished.checks[0].ok);
  EXPECT_FALSE(finished.checks[1].ok);
  EXPECT_EQ(finished.checks[1].message, "the worker calls it ok");
  EXPECT_THAT(finished.stderr_tails, SizeIs(2));
}

TEST(Pool, ThatDiesDoesNotTouchAnotherWorldSize) {
  Recorder recorder;
  RunConfig config = fake_config();
  config.max_busy_ranks = 8;
  run({fake_case("pass", 1), fake_case("sigsegv", 2), fake_case("pass", 4), fake_case("pass", 2)}, config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "crash", "pass", "pass"));
  for (const PoolRetired& retired : recorder.all<PoolRetired>()) {
    EXPECT_EQ(retired.reason == RetireReason::finished, retired.pool.key != "cpu/2" || retired.pool.generation == 2);
  }
}

TEST(Pool, WaitsWithItsStartUntilItsRanksFit) {
  Recorder recorder;
  RunConfig config = fake_config();
  config.max_busy_ranks = 2;
  run({fake_case("pass", 2), fake_case("pass", 1), fake_case("pass", 4), fake_case("pass", 2)}, config, recorder);
  std::vector<std::string> started;
  for (const CaseStarted& s : recorder.all<CaseStarted>()) started.push_back(s.pool.key);
  EXPECT_THAT(started, ElementsAre("cpu/2", "cpu/2", "cpu/1", "cpu/4"));
}

std::string words_of_rank_with_policy(const char* policy) {
  if (policy != nullptr) {
    ::setenv("OMP_WAIT_POLICY", policy, 1);
  } else {
    ::unsetenv("OMP_WAIT_POLICY");
  }
  RunConfig config = fake_config();
  config.worker_command = {"sh", "-c", "echo policy=$OMP_WAIT_POLICY >&2; exit 69"};
  Recorder recorder;
  run(fake_cases({"pass"}), config, recorder);
  ::unsetenv("OMP_WAIT_POLICY");
  return recorder.finished(0).reason;
}

TEST(Pool, HasThreadsThatDoNotSpinUnlessTheUserSaysSo) {
  EXPECT_THAT(words_of_rank_with_policy(nullptr), HasSubstr("policy=passive"));
  EXPECT_THAT(words_of_rank_with_policy("active"), HasSubstr("policy=active"));
}

TEST(Pool, IsReplacedAfterSoManyCases) {
  Recorder recorder;
  RunConfig config = fake_config();
  config.pool_max_cases = 2;
  run(fake_cases({"pass", "pass", "pass"}), config, recorder);
  EXPECT_THAT(recorder.retirements(), ElementsAre("max_cases", "finished"));
  EXPECT_EQ(recorder.finished(2).pool->generation, 2);
  EXPECT_THAT(recorder.all<PoolRetired>()[0].exits, Each(Field(&RankExit::status, "exit 0")));
}

TEST(Pool, IsReplacedWhenItsDescriptorsGrowPastTheLimit) {
  Recorder recorder;
  RunConfig config = fake_config();
  config.hygiene.fds = 100;  // which the second case reaches, and the third passes
  run(fake_cases({"leaks_fds", "leaks_fds", "leaks_fds", "pass"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass", "pass", "pass"));
  EXPECT_THAT(recorder.retirements(), ElementsAre("hygiene", "finished"));
  const PoolRetired retired = recorder.all<PoolRetired>()[0];
  EXPECT_EQ(retired.cases, 3);
  EXPECT_THAT(retired.detail, HasSubstr("rank 0: open descriptors grew from 10 to 210"));
  EXPECT_THAT(retired.exits, Each(Field(&RankExit::status, "exit 0"))) << "it is asked to shut down";
}

TEST(Pool, IsReplacedWhenItsMemoryOrItsThreadsGrowPastTheirLimit) {
  RunConfig config = fake_config();
  config.hygiene = {.rss_kib = 150, .fds = 0, .threads = 150};
  for (const auto& [model, grown] : {std::pair{"leaks_memory", "resident KiB grew from 1000 to 1200"},
                                     std::pair{"leaks_threads", "threads grew from 2 to 202"}}) {
    Recorder recorder;
    run(fake_cases({model, model, model, "pass"}), config, recorder);
    EXPECT_THAT(recorder.retirements(), ElementsAre("hygiene", "finished"));
    EXPECT_THAT(recorder.all<PoolRetired>()[0].detail, HasSubstr(grown));
  }
}

TEST(Pool, MayGrowAsItLikesWithoutALimit) {
  RunConfig config = fake_config();
  config.hygiene = {.rss_kib = 0, .fds = 0, .threads = 0};
  for (const std::string model : {"leaks_memory", "leaks_fds", "leaks_threads"}) {
    Recorder recorder;
    run(fake_cases({model, model, model, model}), config, recorder);
    EXPECT_THAT(recorder.retirements(), ElementsAre("finished")) << model;
  }
}

// Of a process that the case has left and that has ended, nobody but the driver can take the exit status.
TEST(Pool, LeavesNoDeadProcessOfACaseBehindForAsLongAsItLives) {
  Recorder recorder;
  std::vector<pid_t> dead;
  recorder.on_each = [&](const Event& event) {
    const auto* started = std::get_if<CaseStarted>(&event);
    if (started == nullptr || started->index != 2) return;
    for (const ProcessInfo& process : list_descendants(::getpid())) {
      if (process.dead()) dead.push_back(process.pid);
    }
  };
  run(fake_cases({"dead_orphan", "pass", "pass"}), fake_config(), recorder);
  EXPECT_THAT(recorder.retirements(), ElementsAre("finished"));
  EXPECT_THAT(dead, IsEmpty());
}

TEST(Pool, ThatKnowsNoShutdownEndsWithItsInput) {
  RunConfig config = fake_config();
  config.grace = std::chrono::seconds(30);
  Recorder recorder;
  run(fake_cases({"ignores_shutdown"}), config, recorder);
  EXPECT_THAT(recorder.all<PoolRetired>().at(0).exits, Each(Field(&RankExit::status, "exit 0")));
}

TEST(Pool, ThatLostARankIsKilledWithoutGrace) {
  RunConfig config = fake_config();
  config.grace = std::chrono::seconds(10);
  Recorder recorder;
  run(fake_cases({"sigkill@1"}), config, recorder);
  EXPECT_EQ(recorder.all<PoolRetired>().at(0).exits.at(0).status, "signal 9 (SIGKILL), by the driver");
}

TEST(Pool, TellsEachRankWhoItIs) {
  const TemporaryPath folder("ranks");
  std::filesystem::create_directory(folder.get());
  RunConfig config = fake_config();
  config.device = "cuda";
  const std::string script =
      R"(echo $WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $CP_POOL_DEVICE > "$1/$RANK"; exec "$0")";
  config.worker_command = {"sh", "-c", script, config.worker_command.front(), folder.get().string()};
  Recorder recorder;
  run(fake_cases({"pass"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass"));
  for (const std::string rank : {"0", "1"}) {
    std::ifstream in(folder.get() / rank);
    std::string said;
    std::getline(in, said);
    EXPECT_EQ(said, "2 " + rank + "/2 cuda");
  }
}

TEST(Pool, WithAStoppedRankEndsByTheFirstSignal) {
  RunConfig config = fake_config();
  config.timeout = milliseconds(300);
  config.grace = std::chrono::seconds(10);
  Recorder recorder;
  run(fake_cases({"sigstop@1"}), config, recorder);
  EXPECT_THAT(recorder.all<PoolRetired>().at(0).exits,
              Each(Field(&RankExit::status, "signal 15 (SIGTERM), by the driver")));
}

TEST(Case, WhosePoolDiesBeforeItStartsIsSentOnceMore) {
  const TemporaryPath starts("starts");
  Recorder recorder;
  run(fake_cases({"die_before_started_once", "pass"}), fake_config({"--starts=" + starts.get().string()}), recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass"));
  EXPECT_EQ(recorder.finished(0).attempts, 2);
  EXPECT_THAT(recorder.all<CaseStarted>(), SizeIs(3));
  EXPECT_THAT(recorder.retirements(), ElementsAre("crash", "finished"));
  EXPECT_EQ(recorder.all<PoolRetired>()[0].cases, 0);
}

TEST(Case, WhosePoolDiesTwiceBeforeItStartsIsACrash) {
  for (const std::string model : {"die_before_started", "garbage_before_started"}) {
    Recorder recorder;
    run(fake_cases({model, "pass"}), fake_config(), recorder);
    EXPECT_THAT(recorder.outcomes(), ElementsAre("crash", "pass")) << model;
    EXPECT_EQ(recorder.finished(0).attempts, 2);
    EXPECT_THAT(recorder.finished(0).reason, HasSubstr("before the case had started"));
    EXPECT_THAT(recorder.all<PoolReady>(), SizeIs(3));
  }
}

TEST(Case, IsNotStartedByWhatIsSaidOfAnother) {
  Recorder recorder;
  run(fake_cases({"started_of_another", "pass"}), fake_config(), recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("crash", "pass"));
  EXPECT_EQ(recorder.finished(0).attempts, 2);
  EXPECT_THAT(recorder.finished(0).reason, EndsWith("; before the case had started, 2 times"));
  EXPECT_THAT(recorder.finished(0).reason, testing::Not(HasSubstr("backward")));
}

TEST(Case, WhoseRankIsKilledDoesNotBlameTheMemoryWithoutACause) {
  Recorder recorder;
  run({fake_case("sigkill", 1)}, fake_config(), recorder);
  EXPECT_EQ(recorder.finished(0).reason, "rank 0 died: signal 9 (SIGKILL)");
}

TEST(Case, WithAnErrorWhoseRankDiesBeforeItsFenceIsACrash) {
  Recorder recorder;
  run(fake_cases({"unfenced_error_then_exit", "pass"}), fake_config(), recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("crash", "pass"));
  EXPECT_EQ(recorder.finished(0).reason,
            "rank 0 died: exit 3, after the result \"error\": it is unfenced_error_then_exit");
}

TEST(Case, IsReportedWithAllThatItsWorkerSaidOfItCleaned) {
  Recorder recorder;
  run(fake_cases({"full_result"}), fake_config(), recorder);
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

TEST(Case, WithAnErrorFollowedByDeathNeverPasses) {
  Recorder recorder;
  run(fake_cases({"error_then_exit", "pass"}), fake_config(), recorder);
  // Both are true; which depends on whether the death is seen while the tail is collected.
  EXPECT_THAT(recorder.outcomes(), ElementsAre(AnyOf("error", "crash"), "pass"));
  EXPECT_THAT(recorder.retirements(), ElementsAre("died_after_result", "finished"));
}

TEST(Case, ThatItsWorkerNeverReadsEndsAtItsDeadline) {
  NamedCase large = fake_case("pass");
  large.c.seqlens = std::vector<std::int64_t>(100000, 1);  // more than a pipe holds
  RunConfig config = fake_config();
  config.timeout = milliseconds(1000);
  Recorder recorder;
  run({fake_case("stops_reading"), large, fake_case("pass")}, config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "timeout", "pass"));
  EXPECT_THAT(recorder.finished(1).reason, HasSubstr("rank 0 has not read its request"));
  EXPECT_THAT(recorder.retirements(), ElementsAre("stdin_broken", "finished"));
}

std::string stderr_log(const std::filesystem::path& run_dir, const std::string& pool) {
  std::ifstream in(run_dir / "pools" / pool / "rank0.stderr.log");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Prepare, FollowsTheCaseBeforeForAWorkerThatOffersIt) {
  const TemporaryPath folder("logs");
  RunConfig config = fake_config({"--offers=prepare"});
  config.run_dir = folder.get();
  Recorder recorder;
  NamedCase last = fake_case("fail", 2);
  last.c.batch = 1;
  last.c.seqlen_q = 32;
  run({fake_case("skip", 2), fake_case("pass", 1), last}, config, recorder);
  // On the pool of two ranks the next case is the third of the list; after it nothing is known to come.
  EXPECT_THAT(stderr_log(folder.get(), "cpu-2-gen1"),
              testing::MatchesRegex("rank 0 starts skip seq 1\n.*prepares fail seq 2 lengths .32.\n"
                                    "rank 0 starts fail seq 3\n.*\n"));
  EXPECT_THAT(stderr_log(folder.get(), "cpu-2-gen1"), testing::Not(HasSubstr("prepares skip")));
  EXPECT_THAT(stderr_log(folder.get(), "cpu-1-gen1"), testing::Not(HasSubstr("prepares")));
  EXPECT_THAT(recorder.outcomes(), ElementsAre("skip", "pass", "fail"));
}

TEST(Prepare, IsNotSentToAWorkerThatDoesNotOfferItOrToAPoolThatWillNotRunTheNextCase) {
  for (const bool offered : {false, true}) {
    const TemporaryPath folder("logs");
    RunConfig config = fake_config(offered ? std::vector<std::string>{"--offers=prepare"} : std::vector<std::string>{});
    config.run_dir = folder.get();
    if (offered) config.pool_max_cases = 1;
    Recorder recorder;
    run(fake_cases({"pass", "pass"}), config, recorder);
    EXPECT_THAT(stderr_log(folder.get(), "cpu-2-gen1"), testing::Not(HasSubstr("prepares")));
  }
}

TEST(Prepare, IsNotSentBesideACaseThatIsTimed) {
  const TemporaryPath folder("logs");
  RunConfig config = fake_config({"--offers=prepare"});
  config.run_dir = folder.get();
  config.perf = protocol::PerfRequest{};
  Recorder recorder;
  run(fake_cases({"skip", "skip"}), config, recorder);
  EXPECT_THAT(stderr_log(folder.get(), "cpu-2-gen1"), testing::Not(HasSubstr("prepares")));
}

TEST(Prepare, ThatIsRefusedIsNoAnswerToTheRunningCase) {
  Recorder recorder;
  run(fake_cases({"refuses_to_prepare", "pass"}), fake_config({"--offers=prepare"}), recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass"));
  EXPECT_THAT(recorder.retirements(), ElementsAre("finished"));
}

TEST(Tail, IsMarkedWhenItsFenceIsMissing) {
  Recorder recorder;
  run(fake_cases({"pass", "no_fence", "error"}), fake_config(), recorder);
  EXPECT_FALSE(recorder.finished(1).stderr_tails.at(0).fenced);
  EXPECT_FALSE(recorder.finished(2).stderr_tails.at(0).fenced);  // may hold lines of the case before
  EXPECT_TRUE(recorder.finished(0).stderr_tails.empty());
}

TEST(Tail, IsNotOfACaseThatWasSkipped) {
  Recorder recorder;
  run(fake_cases({"skip", "fail"}), fake_config(), recorder);
  EXPECT_THAT(recorder.finished(0).stderr_tails, IsEmpty());
  EXPECT_THAT(recorder.finished(1).stderr_tails, SizeIs(2));
}

TEST(Tail, OfATimeoutHoldsWhereEachRankStood) {
  Recorder recorder;
  RunConfig config = fake_config();
  config.timeout = milliseconds(1000);
  config.stack_wait = milliseconds(1000);
  run(fake_cases({"hang@1"}), config, recorder);
  for (const StderrTail& tail : recorder.finished(0).stderr_tails) {
    EXPECT_THAT(tail.text, HasSubstr("starts hang@1 seq 1\nstack of this rank\n")) << tail.rank;
  }
}

TEST(Tail, IsCleaned) {
  Recorder recorder;
  run(fake_cases({"invalid_utf8"}), fake_config(), recorder);
  EXPECT_THAT(recorder.finished(0).stderr_tails.at(0).text, HasSubstr("bad \uFFFD\uFFFD bytes and \\x1b[31mcolour"));
  EXPECT_TRUE(recorder.finished(0).stderr_tails.at(0).fenced);
}

TEST(Key, IsGivenUpAfterThreeTimeoutsRunning) {
  Recorder recorder;
  RunConfig config = fake_config();
  config.timeout = milliseconds(200);
  run(fake_cases({"hang", "hang", "hang", "pass", "pass"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("timeout", "timeout", "timeout", "infra", "infra"));
  EXPECT_THAT(recorder.finished(3).reason, HasSubstr("3 cases running timed out"));
}

TEST(Key, IsNotGivenUpWhenACaseEndsBetweenTimeouts) {
  Recorder recorder;
  RunConfig config = fake_config();
  config.timeout = milliseconds(1000);
  config.max_consecutive_timeouts = 2;
  run(fake_cases({"hang", "fail", "hang", "pass"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("timeout", "fail", "timeout", "pass"));
}

TEST(Run, WithoutCasesFinishesAtOnce) {
  Recorder recorder;
  const RunFinished finished = run({}, fake_config(), recorder);
  EXPECT_TRUE(finished.ledger_exact);
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(recorder.events, SizeIs(2));
}

TEST(Run, WaitsForNoClockOnceItsCasesAreDone) {
  Recorder recorder;
  RunConfig config = fake_config();
  config.global_timeout = std::chrono::seconds(30);
  config.tick = std::chrono::seconds(30);
  const RunFinished finished = run(fake_cases({"pass"}), config, recorder);
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_LT(finished.duration_ms, 20000);
}

TEST(Run, StopsAtTheFirstFailureIfAsked) {
  Recorder recorder;
  RunConfig config = fake_config();
  config.max_failures = 1;
  const RunFinished finished = run(fake_cases({"skip", "fail", "pass", "pass"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("skip", "fail", "not-run", "not-run"));
  EXPECT_THAT(recorder.finished(3).reason, HasSubstr("--max-fail"));
  EXPECT_EQ(finished.exit_code, 100);
  EXPECT_TRUE(finished.ledger_exact);
}

TEST(Run, StopsAfterSoManyFailures) {
  Recorder recorder;
  RunConfig config = fake_config();
  config.max_failures = 2;
  run(fake_cases({"fail", "pass", "error", "pass"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("fail", "pass", "error", "not-run"));
  EXPECT_THAT(recorder.finished(3).reason, HasSubstr("after 2 failures (--max-fail)"));
}

TEST(Run, EndsItsRunningCaseAtTheGlobalTimeout) {
  Recorder recorder;
  RunConfig config = fake_config();
  config.global_timeout = milliseconds(1500);
  const RunFinished finished =
      run({fake_case("hang", 2), fake_case("pass", 2), fake_case("pass", 1)}, config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("timeout", "not-run", "not-run"));
  EXPECT_EQ(finished.exit_code, 100);
  EXPECT_THAT(recorder.finished(0).stderr_tails.at(0).text, HasSubstr("stack of this rank"));
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(Run, CancelsItsRunningCaseAtTheGlobalTimeoutAndShutsItsPoolDownInOrder) {
  Recorder recorder;
  RunConfig config = fake_config();
  config.grace = std::chrono::seconds(30);
  config.global_timeout = milliseconds(1500);
  const RunFinished finished = run(fake_cases({"until_cancelled", "pass"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("timeout", "not-run"));
  EXPECT_THAT(recorder.finished(0).reason, HasSubstr("still running at the end of the run's 1500 ms"));
  EXPECT_THAT(recorder.finished(0).ranks, SizeIs(2)) << "what the worker said of its ranks is kept";
  ASSERT_THAT(recorder.all<PoolRetired>(), SizeIs(1));
  EXPECT_EQ(recorder.all<PoolRetired>()[0].exits.at(0).status, "exit 0");
  EXPECT_EQ(finished.exit_code, 100);
}

TEST(Run, TellsItsSinksThatTimePassesWhileACaseHangs) {
  Recorder recorder;
  RunConfig config = fake_config();
  config.timeout = milliseconds(500);
  config.tick = milliseconds(20);
  run(fake_cases({"hang"}), config, recorder);
  EXPECT_GE(recorder.ticks, 5);
}

TEST(Run, KeepsFullLogsInItsFolder) {
  const TemporaryPath folder("logs");
  RunConfig config = fake_config();
  config.run_dir = folder.get();
  Recorder recorder;
  run(fake_cases({"pass", "sigkill@1", "pass"}), config, recorder);
  for (const char* pool : {"cpu-2-gen1", "cpu-2-gen2"}) {
    for (const char* file : {"rank0.stdout.log", "rank0.stderr.log", "rank1.stderr.log"}) {
      std::ifstream in(folder.get() / "pools" / pool / file);
      std::ostringstream text;
      text << in.rdbuf();
      EXPECT_THAT(text.str(), HasSubstr(std::string(file).find("stdout") == std::string::npos ? "starts" : "ready"));
    }
  }
}

TEST(Run, ThrowsWhatItsSinkThrowsAndLeavesNoProcess) {
  const std::size_t descriptors = open_descriptors();
  Recorder recorder;
  recorder.on_each = [](const Event& event) {
    if (std::holds_alternative<CaseStarted>(event)) throw std::runtime_error("disk full");
  };
  EXPECT_THROW(run({fake_case("daemon", 1), fake_case("setsid_grandchild", 2)}, fake_config(), recorder),
               std::runtime_error);
  EXPECT_THAT(processes_left(), IsEmpty());
  EXPECT_EQ(open_descriptors(), descriptors);
}

TEST(Run, ThrowsTheFirstOfWhatItsSinkThrows) {
  Recorder recorder;
  int thrown = 0;
  recorder.on_each = [&](const Event& event) {
    if (thrown > 0 || std::holds_alternative<CaseStarted>(event)) throw std::runtime_error(std::to_string(++thrown));
  };
  try {
    run({fake_case("pass", 1), fake_case("hang", 2)}, fake_config(), recorder);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "1");
  }
  EXPECT_GT(thrown, 1) << "there was another";
}

// Waits in a thread of its own until the log has the text, then calls the function.
std::jthread when_logged(const std::filesystem::path& log, const std::string& text, const std::function<void()>& then) {
  return std::jthread([=](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::ifstream in(log);
      std::ostringstream content;
      content << in.rdbuf();
      if (content.str().find(text) != std::string::npos) return then();
      std::this_thread::yield();
    }
  });
}

class BusyRank : public testing::TestWithParam<int> {};

// Kills a rank in the middle of a case in which rank 0 hangs. Whether the case is reported soon: in the 50 ms that the
// driver gives a living rank 0 for its result, and ten times what the pool's start took on this machine.
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

TEST(Interrupt, CancelsTheRunningCaseAndRunsNoOther) {
  const std::size_t descriptors = open_descriptors();
  Recorder recorder;
  recorder.on_each = [](const Event& event) {
    const auto* started = std::get_if<CaseStarted>(&event);
    if (started != nullptr && started->index == 1) ::raise(SIGINT);
  };
  const RunFinished finished = run(fake_cases({"pass", "hang", "pass"}), fake_config(), recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "cancelled", "not-run"));
  EXPECT_THAT(recorder.retirements(), ElementsAre("interrupted"));
  EXPECT_TRUE(finished.interrupted);
  EXPECT_TRUE(finished.ledger_exact);
  EXPECT_EQ(finished.exit_code, 130);
  EXPECT_THAT(processes_left(), IsEmpty());
  EXPECT_EQ(open_descriptors(), descriptors);
}

// Until its phase has been told, however the first of these events and the worker's message come.
TEST(SlowCase, IsToldOfAgainAndAgainWithItsPhase) {
  RunConfig config = fake_config();
  config.slow_after = milliseconds(1);
  Recorder recorder;
  recorder.on_each = [](const Event& event) {
    const auto* progress = std::get_if<CaseProgress>(&event);
    if (progress != nullptr && progress->phase == "backward") ::raise(SIGINT);
  };
  run(fake_cases({"progress_then_hang"}), config, recorder);
  const auto told = recorder.all<CaseProgress>();
  ASSERT_THAT(told, Not(IsEmpty()));
  EXPECT_TRUE(told.front().slow);
  double before_ms = 0;
  for (const CaseProgress& progress : told) {
    EXPECT_EQ(progress.id, "fake/progress_then_hang");
    EXPECT_EQ(progress.seq, recorder.finished(0).seq);
    EXPECT_EQ(progress.pool.key, "cpu/2");
    EXPECT_GT(progress.running_ms, before_ms);
    EXPECT_EQ(progress.timeout_ms, 30000);
    before_ms = progress.running_ms;
  }
  EXPECT_EQ(told.back().phase, "backward");
}

TEST(SlowCase, IsNotToldOfWithoutALimit) {
  RunConfig config = fake_config();
  config.slow_after = milliseconds(0);
  config.timeout = milliseconds(200);
  Recorder recorder;
  run(fake_cases({"hang"}), config, recorder);
  EXPECT_THAT(recorder.all<CaseProgress>(), IsEmpty());
}

// Interrupts the run when its first case has been sent.
void interrupt_first_case(Recorder& recorder) {
  recorder.on_each = [](const Event& event) {
    if (std::holds_alternative<CaseStarted>(event)) ::raise(SIGINT);
  };
}

TEST(Interrupt, LetsTheWorkerEndTheCaseAndShutsItsPoolDownInOrder) {
  RunConfig config = fake_config({"--offers=cancel"});
  config.grace = std::chrono::seconds(30);
  Recorder recorder;
  interrupt_first_case(recorder);
  const RunFinished finished = run(fake_cases({"until_cancelled", "pass"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("cancelled", "not-run"));
  EXPECT_EQ(recorder.finished(0).reason, "the run was interrupted");
  EXPECT_THAT(recorder.finished(0).ranks, SizeIs(2)) << "what the worker said of its ranks is kept";
  EXPECT_THAT(recorder.retirements(), ElementsAre("interrupted"));
  const PoolRetired retired = recorder.all<PoolRetired>().at(0);
  for (const RankExit& exit : retired.exits) EXPECT_EQ(exit.status, "exit 0");
  EXPECT_EQ(finished.exit_code, 130);
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(Interrupt, KeepsAResultThatIsOnItsWay) {
  RunConfig config = fake_config();
  config.grace = std::chrono::seconds(30);
  Recorder recorder;
  interrupt_first_case(recorder);
  run(fake_cases({"until_cancelled_then_pass", "pass"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "not-run"));
}

TEST(Interrupt, OfAWorkerThatDiesOfBeingCancelledIsNoCrash) {
  Recorder recorder;
  interrupt_first_case(recorder);
  run(fake_cases({"until_cancelled_then_exit"}), fake_config(), recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("cancelled"));
  EXPECT_THAT(recorder.retirements(), ElementsAre("interrupted"));
  EXPECT_THAT(recorder.all<PoolRetired>()[0].detail, HasSubstr("rank 0 died: exit 3"));
}

TEST(Interrupt, OfAWorkerThatDoesNotAnswerCancelWaitsForTheGraceOnly) {
  RunConfig config = fake_config({"--offers=cancel"});
  Recorder recorder;
  interrupt_first_case(recorder);
  run(fake_cases({"hang"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("cancelled"));
  EXPECT_EQ(recorder.all<PoolRetired>()[0].exits.at(0).status, "signal 15 (SIGTERM), by the driver");
  EXPECT_LT(recorder.finished(0).duration_ms, 10000);
}

TEST(Interrupt, OfAWorkerThatDoesNotAnswerCancelDoesNotAskItForMore) {
  RunConfig config = fake_config({"--offers=cancel"});
  Recorder recorder;
  interrupt_first_case(recorder);
  run(fake_cases({"until_shutdown"}), config, recorder);
  EXPECT_EQ(recorder.all<PoolRetired>().at(0).exits.at(0).status, "signal 15 (SIGTERM), by the driver");
}

// Interrupts the run at an event, and then again and again.
class Impatient : public Recorder {
 public:
  void on_tick() override {
    if (interrupted) ::raise(SIGTERM);
  }
  void interrupt() {
    interrupted = true;
    ::raise(SIGINT);
  }
  bool interrupted = false;
};

TEST(Interrupt, GivenTwiceWaitsForNoAnswer) {
  RunConfig config = fake_config({"--offers=cancel"});
  config.grace = std::chrono::seconds(30);
  config.tick = milliseconds(20);
  const auto start = std::chrono::steady_clock::now();
  for (const std::string model : {"hang", "stops_reading"}) {  // to cancel, and to shutdown
    Impatient recorder;
    recorder.on_each = [&](const Event& event) {
      const bool now =
          model == "hang" ? std::holds_alternative<CaseStarted>(event) : std::holds_alternative<CaseFinished>(event);
      if (now && !recorder.interrupted) recorder.interrupt();
    };
    EXPECT_EQ(run(fake_cases({model}), config, recorder).exit_code, 130);
  }
  EXPECT_LT(ms_between(start, std::chrono::steady_clock::now()), 20000);
}

TEST(Interrupt, IsToldOfOnceAndSoIsTheSecondOne) {
  RunConfig config = fake_config({"--offers=cancel"});
  config.grace = std::chrono::seconds(30);
  config.tick = milliseconds(20);
  Impatient recorder;
  recorder.on_each = [&](const Event& event) {
    if (std::holds_alternative<CaseStarted>(event)) recorder.interrupt();
  };
  run(fake_cases({"hang"}), config, recorder);
  const auto told = recorder.all<RunStopping>();
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_EQ(told[0].reason, RunStopping::Reason::interrupted);
  EXPECT_EQ(told[0].limit_ms, 90000);
  EXPECT_EQ(told[1].reason, RunStopping::Reason::killed);
  EXPECT_EQ(told[1].limit_ms, 0);
}

TEST(Interrupt, DoesNotWaitForStacks) {
  const TemporaryPath folder("stacks");
  RunConfig config = fake_config();
  config.run_dir = folder.get();
  config.timeout = milliseconds(300);
  config.stack_wait = std::chrono::seconds(30);
  Recorder recorder;
  const auto start = std::chrono::steady_clock::now();
  const std::jthread interrupt = when_logged(folder.get() / "pools" / "cpu-2-gen1" / "rank0.stderr.log",
                                             "stack of this rank", [] { ::kill(::getpid(), SIGINT); });
  EXPECT_EQ(run(fake_cases({"hang"}), config, recorder).exit_code, 130);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("timeout"));
  EXPECT_LT(ms_between(start, std::chrono::steady_clock::now()), 20000);
}

// timeout(1) signals the program, and then its group.
TEST(Interrupt, GivenTwiceAtOnceIsOne) {
  RunConfig config = fake_config({"--offers=cancel"});
  config.grace = std::chrono::seconds(30);
  Recorder recorder;
  recorder.on_each = [](const Event& event) {
    if (!std::holds_alternative<CaseStarted>(event)) return;
    ::raise(SIGTERM);
    ::raise(SIGTERM);
  };
  run(fake_cases({"until_cancelled"}), config, recorder);
  EXPECT_THAT(recorder.finished(0).ranks, SizeIs(2)) << "the worker could still say how the case ended";
}

TEST(Interrupt, GivenTwiceWaitsForNobody) {
  RunConfig config = fake_config();
  config.grace = std::chrono::minutes(10);
  Recorder recorder;
  const auto interrupt_at = [&](const Event& event) {
    if (std::holds_alternative<CaseStarted>(event)) ::raise(SIGINT);
    if (std::holds_alternative<CaseFinished>(event)) ::raise(SIGTERM);
  };
  recorder.on_each = interrupt_at;
  const RunFinished finished = run(fake_cases({"ignore_sigterm"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("cancelled"));
  EXPECT_EQ(finished.exit_code, 130);
  EXPECT_THAT(processes_left(), IsEmpty());
}

}  // namespace
}  // namespace cp_pool::driver_test
