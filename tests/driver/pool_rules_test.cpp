// When a pool starts, is replaced and ends, and when the driver gives up a key (device and world size).
#include <unistd.h>

#include <gmock/gmock.h>

#include "driver/os/process_tree.h"
#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using std::chrono::milliseconds;
using namespace ::testing;
using testing::Field;

TEST(Pool, KeepsItsWorkersWarmFromCaseToCase) {
  RunConfig config = fake_config();
  config.grace = std::chrono::seconds(30);
  const Recorder recorder = run(fake_cases({"pass", "skip", "pass", "fail", "pass"}), config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "skip", "pass", "fail", "pass"));
  EXPECT_THAT(recorder.all<PoolReady>(), SizeIs(1));
  ASSERT_THAT(recorder.all<PoolRetired>(), SizeIs(1));
  EXPECT_EQ(recorder.all<PoolRetired>()[0].cases, 5);
  EXPECT_THAT(recorder.all<PoolRetired>()[0].exits, SizeIs(2));
  EXPECT_EQ(recorder.all<PoolRetired>()[0].exits[1].status, "exit 0");
  EXPECT_EQ(recorder.end().exit_code, 100);
}

TEST(Pool, GivesEverySentCaseItsOwnSeq) {
  const Recorder recorder =
      run({fake_case("pass", 1), fake_case("sigkill", 2), fake_case("pass", 1), fake_case("pass", 2)});
  std::vector<std::int64_t> seqs;
  for (const CaseStarted& started : recorder.all<CaseStarted>()) seqs.push_back(started.seq);
  EXPECT_THAT(seqs, ElementsAre(1, 2, 3, 4));
}

TEST(Pool, ThatPromisesFiguresIsBelievedNoPassWithoutThem) {
  const Recorder recorder =
      run(fake_cases({"pass_within_bound", "pass", "pass_within_bound", "skip"}), fake_config({"--figures"}));
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "error", "pass", "skip"));
  EXPECT_EQ(recorder.finished(1).reason,
            "a result \"pass\" without a check of ranks 0, 1 (the worker promises figures)");
  EXPECT_THAT(recorder.retirements(), ElementsAre("protocol_break", "finished"));
  EXPECT_EQ(recorder.finished(2).pool->generation, 2);
}

TEST(Pool, ThatDiesDoesNotTouchAnotherWorldSize) {
  RunConfig config = fake_config();
  config.slots = 8;
  const Recorder recorder =
      run({fake_case("pass", 1), fake_case("sigsegv", 2), fake_case("pass", 4), fake_case("pass", 2)}, config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "crash", "pass", "pass"));
  for (const PoolRetired& retired : recorder.all<PoolRetired>()) {
    EXPECT_EQ(retired.reason == RetireReason::finished, retired.pool.key != "cpu/2" || retired.pool.generation == 2);
  }
}

std::string words_of_rank_with_policy(const char* policy) {
  if (policy != nullptr) {
    ::setenv("OMP_WAIT_POLICY", policy, 1);
  } else {
    ::unsetenv("OMP_WAIT_POLICY");
  }
  RunConfig config = fake_config();
  config.worker_command = {"sh", "-c", "echo policy=$OMP_WAIT_POLICY >&2; exit 69"};
  const Recorder recorder = run(fake_cases({"pass"}), config);
  ::unsetenv("OMP_WAIT_POLICY");
  return recorder.finished(0).reason;
}

TEST(Pool, HasThreadsThatDoNotSpinUnlessTheUserSaysSo) {
  EXPECT_THAT(words_of_rank_with_policy(nullptr), HasSubstr("policy=passive"));
  EXPECT_THAT(words_of_rank_with_policy("active"), HasSubstr("policy=active"));
}

TEST(Pool, IsReplacedAfterSoManyCases) {
  RunConfig config = fake_config();
  config.pool_max_cases = 2;
  config.grace = std::chrono::seconds(30);
  const Recorder recorder = run(fake_cases({"pass", "pass", "pass"}), config);
  EXPECT_THAT(recorder.retirements(), ElementsAre("max_cases", "finished"));
  EXPECT_EQ(recorder.finished(2).pool->generation, 2);
  EXPECT_THAT(recorder.all<PoolRetired>()[0].exits, Each(Field(&RankExit::status, "exit 0")));
}

// Only the driver can reap a process that a case left behind and that has ended: it is the subreaper.
TEST(Pool, LeavesNoDeadProcessOfACaseBehindForAsLongAsItLives) {
  Recorder recorder;
  std::vector<pid_t> dead;
  recorder.on<CaseStarted>([&](const CaseStarted& started) {
    if (started.index != 2) return;
    for (const ProcessInfo& process : list_descendants(::getpid())) {
      if (process.dead()) dead.push_back(process.pid);
    }
  });
  run(fake_cases({"dead_orphan", "pass", "pass"}), fake_config(), recorder);
  EXPECT_THAT(recorder.retirements(), ElementsAre("finished"));
  EXPECT_THAT(dead, IsEmpty());
}

TEST(Pool, ThatKnowsNoShutdownEndsWithItsInput) {
  RunConfig config = fake_config();
  config.grace = std::chrono::seconds(30);
  const Recorder recorder = run(fake_cases({"ignores_shutdown"}), config);
  EXPECT_THAT(recorder.all<PoolRetired>().at(0).exits, Each(Field(&RankExit::status, "exit 0")));
}

TEST(Pool, TellsEachRankWhoItIs) {
  const TemporaryPath folder("ranks");
  std::filesystem::create_directory(folder.get());
  RunConfig config = fake_config();
  config.device = "cuda";
  const std::string script =
      R"(echo $WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $CP_POOL_DEVICE > "$1/$RANK"; exec "$0")";
  config.worker_command = {"sh", "-c", script, config.worker_command.front(), folder.get().string()};
  const Recorder recorder = run(fake_cases({"pass"}), config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass"));
  for (const std::string rank : {"0", "1"}) {
    EXPECT_EQ(test::read_file(folder.get() / rank), "2 " + rank + "/2 cuda\n");
  }
}

TEST(Pool, WithAStoppedRankEndsByTheFirstSignal) {
  RunConfig config = fake_config();
  config.timeout = milliseconds(300);
  config.grace = std::chrono::seconds(10);
  const Recorder recorder = run(fake_cases({"sigstop@1"}), config);
  EXPECT_THAT(recorder.all<PoolRetired>().at(0).exits,
              Each(Field(&RankExit::status, "signal 15 (SIGTERM), by the driver")));
}

TEST(Key, IsGivenUpAfterThreeTimeoutsRunning) {
  RunConfig config = fake_config();
  config.timeout = milliseconds(200);
  const Recorder recorder = run(fake_cases({"hang", "hang", "hang", "pass", "pass"}), config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("timeout", "timeout", "timeout", "infra", "infra"));
  EXPECT_THAT(recorder.finished(3).reason, HasSubstr("3 cases running timed out"));
}

TEST(Key, IsNotGivenUpWhenACaseEndsBetweenTimeouts) {
  RunConfig config = fake_config();
  config.max_consecutive_timeouts = 2;
  std::vector<Item> cases = fake_cases({"hang", "fail", "hang", "pass"});
  for (const std::size_t hang : {0U, 2U}) cases[hang].timeout = milliseconds(1000);
  const Recorder recorder = run(cases, config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("timeout", "fail", "timeout", "pass"));
}

}  // namespace
}  // namespace cp_pool::driver_test
