// When a run ends, what it tells its sinks while it goes on, and what it leaves behind.
#include <csignal>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using std::chrono::milliseconds;
using namespace ::testing;

TEST(Run, WithoutCasesFinishesAtOnce) {
  const Recorder recorder = run({});
  EXPECT_TRUE(recorder.end().ledger_exact);
  EXPECT_EQ(recorder.end().exit_code, 0);
  EXPECT_THAT(recorder.events, SizeIs(2));
}

TEST(Run, WaitsForNoClockOnceItsCasesAreDone) {
  RunConfig config = fake_config();
  config.global_timeout = std::chrono::seconds(30);
  config.tick = std::chrono::seconds(30);
  const Recorder recorder = run(fake_cases({"pass"}), config);
  EXPECT_EQ(recorder.end().exit_code, 0);
  EXPECT_LT(recorder.end().duration_ms, 20000);
}

TEST(Run, SaysWhenPoolsAndCasesWere) {
  const Recorder recorder = run(fake_cases({"pass", "sigkill", "pass"}));
  double last = 0;
  std::size_t told = 0;
  for (const Event& event : recorder.events) {
    std::visit(
        [&](const auto& e) {
          if constexpr (requires { e.at_ms; }) {
            ASSERT_TRUE(e.at_ms);
            EXPECT_GE(*e.at_ms, last);
            last = *e.at_ms;
            ++told;
          }
        },
        event);
  }
  EXPECT_EQ(told, 12U) << "two pools: spawned, ready, retired; three cases: started, finished";
  EXPECT_LE(last, recorder.end().duration_ms);
  for (const CaseFinished& event : recorder.all<CaseFinished>()) EXPECT_LE(event.duration_ms, *event.at_ms);
}

TEST(Run, StopsAfterSoManyFailures) {
  RunConfig config = fake_config();
  config.max_failures = 2;
  const Recorder recorder = run(fake_cases({"skip", "fail", "pass", "error", "pass"}), config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("skip", "fail", "pass", "error", "not-run"));
  EXPECT_THAT(recorder.finished(4).reason, HasSubstr("after 2 failures (--max-fail)"));
  EXPECT_EQ(recorder.end().exit_code, 100);
  EXPECT_TRUE(recorder.end().ledger_exact);
}

TEST(Run, EndsItsRunningCaseAtTheGlobalTimeout) {
  RunConfig config = fake_config();
  config.global_timeout = milliseconds(1500) + 10 * time_of_a_pass(config);
  config.stack_wait = std::chrono::seconds(1);
  const Recorder recorder = run({fake_case("hang", 2), fake_case("pass", 2), fake_case("pass", 1)}, config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("timeout", "not-run", "not-run"));
  EXPECT_EQ(recorder.end().exit_code, 100);
  EXPECT_THAT(recorder.finished(0).stderr_tails.at(0).text, HasSubstr("stack of this rank"));
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(Run, CancelsItsRunningCaseAtTheGlobalTimeoutAndShutsItsPoolDownInOrder) {
  RunConfig config = fake_config({"--offers=cancel"});
  config.grace = std::chrono::seconds(30);
  config.global_timeout = milliseconds(1500) + 10 * time_of_a_pass(config);
  const Recorder recorder = run(fake_cases({"until_cancelled", "pass"}), config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("timeout", "not-run"));
  EXPECT_THAT(recorder.finished(0).reason,
              HasSubstr(fmt::format("still running at the end of the run's {} ms", config.global_timeout.count())));
  EXPECT_THAT(recorder.finished(0).ranks, SizeIs(2)) << "what the worker said of its ranks is kept";
  ASSERT_THAT(recorder.all<PoolRetired>(), SizeIs(1));
  EXPECT_EQ(recorder.all<PoolRetired>()[0].exits.at(0).status, "exit 0");
  EXPECT_EQ(recorder.end().exit_code, 100);
}

TEST(Run, TellsItsSinksThatTimePassesWhileACaseHangs) {
  class InterruptsAtFifthTick : public Recorder {
   public:
    void on_tick() override {
      if (!all<CaseStarted>().empty() && ++ticks == 5) ::raise(SIGINT);
    }
  };
  InterruptsAtFifthTick recorder;
  RunConfig config = fake_config();
  config.tick = milliseconds(20);
  run(fake_cases({"hang"}), config, recorder);
  EXPECT_GE(recorder.ticks, 5);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("cancelled")) << "the ticks came before its deadline";
}

TEST(Run, KeepsFullLogsInItsFolder) {
  const TemporaryPath folder("logs");
  RunConfig config = fake_config();
  config.run_dir = folder.get();
  const Recorder recorder = run(fake_cases({"pass", "sigkill@1", "pass"}), config);
  for (const char* pool : {"cpu-2-gen1", "cpu-2-gen2"}) {
    for (const char* file : {"rank0.stdout.log", "rank0.stderr.log", "rank1.stderr.log"}) {
      EXPECT_THAT(test::read_file(folder.get() / "pools" / pool / file),
                  HasSubstr(std::string(file).find("stdout") == std::string::npos ? "starts" : "ready"));
    }
  }
}

TEST(Run, ThrowsWhatItsSinkThrowsAndLeavesNoProcess) {
  const std::size_t descriptors = open_descriptors();
  Recorder recorder;
  recorder.on<CaseStarted>([](const CaseStarted&) { throw std::runtime_error("disk full"); });
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
  EXPECT_THAT([&] { run({fake_case("pass", 1), fake_case("hang", 2)}, fake_config(), recorder); },
              ThrowsMessage<std::runtime_error>(StrEq("1")));
  EXPECT_GT(thrown, 1) << "there was another";
}

// The run ends when a progress event has the phase: the first such events may come before the worker's message.
TEST(SlowCase, IsToldOfAgainAndAgainWithItsPhase) {
  RunConfig config = fake_config();
  config.slow_after = milliseconds(1);
  Recorder recorder;
  recorder.on<CaseProgress>([](const CaseProgress& progress) {
    if (progress.phase == "backward") ::raise(SIGINT);
  });
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

}  // namespace
}  // namespace cp_pool::driver_test
