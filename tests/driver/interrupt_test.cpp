// How an interrupt, and a second one, end a run.
#include <csignal>

#include <gmock/gmock.h>

#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using std::chrono::milliseconds;
using namespace ::testing;

TEST(Interrupt, CancelsTheRunningCaseAndRunsNoOther) {
  const std::size_t descriptors = open_descriptors();
  Recorder recorder;
  recorder.on<CaseStarted>([](const CaseStarted& started) {
    if (started.index == 1) ::raise(SIGINT);
  });
  const RunFinished finished = run(fake_cases({"pass", "hang", "pass"}), fake_config(), recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "cancelled", "not-run"));
  EXPECT_THAT(recorder.retirements(), ElementsAre("interrupted"));
  EXPECT_TRUE(finished.interrupted);
  EXPECT_TRUE(finished.ledger_exact);
  EXPECT_EQ(finished.exit_code, 130);
  EXPECT_THAT(processes_left(), IsEmpty());
  EXPECT_EQ(open_descriptors(), descriptors);
}

TEST(Interrupt, LetsTheWorkerEndTheCaseAndShutsItsPoolDownInOrder) {
  RunConfig config = fake_config({"--offers=cancel"});
  config.grace = std::chrono::seconds(30);
  Recorder recorder;
  recorder.on<CaseStarted>([](const CaseStarted&) { ::raise(SIGINT); });
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

// A recorder that interrupts the run when interrupt() is called, and then sends SIGTERM at every tick.
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
  // No answer to cancel, none to shutdown, and none to SIGTERM.
  for (const std::string model : {"hang", "stops_reading", "ignore_sigterm"}) {
    Impatient recorder;
    recorder.on_each = [&](const Event& event) {
      const bool now = model == "stops_reading" ? std::holds_alternative<CaseFinished>(event)
                                                : std::holds_alternative<CaseStarted>(event);
      if (now && !recorder.interrupted) recorder.interrupt();
    };
    EXPECT_EQ(run(fake_cases({model}), config, recorder).exit_code, 130);
    EXPECT_THAT(recorder.outcomes(), ElementsAre(model == "stops_reading" ? "pass" : "cancelled"));
    EXPECT_THAT(processes_left(), IsEmpty());
  }
  EXPECT_LT(ms_between(start, std::chrono::steady_clock::now()), 20000);
}

TEST(Interrupt, IsToldOfOnceAndSoIsTheSecondOne) {
  RunConfig config = fake_config({"--offers=cancel"});
  config.grace = std::chrono::seconds(30);
  config.tick = milliseconds(20);
  Impatient recorder;
  recorder.on<CaseStarted>([&](const CaseStarted&) { recorder.interrupt(); });
  run(fake_cases({"hang"}), config, recorder);
  const auto told = recorder.all<RunStopping>();
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_EQ(told[0].reason, RunStopping::Reason::interrupted);
  EXPECT_EQ(told[0].limit_ms, 90000);
  EXPECT_EQ(told[1].reason, RunStopping::Reason::killed);
  EXPECT_EQ(told[1].limit_ms, 0);
}

// timeout(1) sends its signal to the program and then to the program's process group.
TEST(Interrupt, GivenTwiceAtOnceIsOne) {
  RunConfig config = fake_config({"--offers=cancel"});
  config.grace = std::chrono::seconds(30);
  Recorder recorder;
  recorder.on<CaseStarted>([](const CaseStarted&) {
    ::raise(SIGTERM);
    ::raise(SIGTERM);
  });
  run(fake_cases({"until_cancelled"}), config, recorder);
  EXPECT_THAT(recorder.finished(0).ranks, SizeIs(2)) << "the worker could still say how the case ended";
}

}  // namespace
}  // namespace cp_pool::driver_test
