// Ranks that a fork server forks (driver/ranks/fork_server.h). To the driver they behave like ranks that it executes
// itself. If they cannot be forked, the driver executes them.
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using std::chrono::milliseconds;
using namespace ::testing;

// `mode` is the mode of test_fork_server.py. Ranks that are not forked execute the fake worker.
RunConfig forked_config(const std::string& mode) {
  RunConfig config = fake_config();
  config.fork_server = {"python3", CP_POOL_TEST_FORK_SERVER, mode};
  return config;
}

class ForkedRanks : public testing::Test {
 protected:
  void SetUp() override { descriptors_ = open_descriptors(); }
  void TearDown() override {
    EXPECT_THAT(processes_left(), IsEmpty());
    EXPECT_EQ(open_descriptors(), descriptors_);
  }
  Recorder recorder;

 private:
  std::size_t descriptors_ = 0;
};

TEST_F(ForkedRanks, HaveWhatRanksHaveThatWereExecuted) {
  run({fake_case("facts", 2)}, forked_config("worker"), recorder);
  const auto told = recorder.all<ForkServerTold>();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_TRUE(told[0].ready);
  const auto facts = nlohmann::json::parse(recorder.finished(0).reason);
  EXPECT_EQ(facts["parent"], ::getpid());
  EXPECT_EQ(facts["group"], true);
  EXPECT_EQ(facts["rank"], "0");
  EXPECT_EQ(facts["tag"], true) << "/proc/PID/environ shows another tag than the pool's";
  EXPECT_EQ(facts["added"], "") << "the environment is not that of an executed rank";
  EXPECT_EQ(facts["blocked"], 0);
  EXPECT_EQ(facts["stdin"], "pipe");
  EXPECT_EQ(facts["descriptors"], nlohmann::json::array({facts["master"]}));
}

TEST_F(ForkedRanks, AreOneProcessEachAndEndInOrder) {
  const RunFinished finished = run(fake_cases({"pass", "pass"}, 3), forked_config("worker"), recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass"));
  ASSERT_THAT(recorder.all<PoolSpawned>(), SizeIs(1));
  EXPECT_THAT(recorder.all<PoolSpawned>()[0].pids, SizeIs(3));
  EXPECT_THAT(recorder.retirements(), ElementsAre("finished"));
  EXPECT_TRUE(finished.ledger_exact);
}

TEST_F(ForkedRanks, DieAsTheyWouldIfExecuted) {
  RunConfig config = forked_config("worker");
  config.slots = 1;  // one pool at a time
  run(fake_cases({"exit_0", "exit_3", "return_4", "signal_11", "signal_9", "pass"}, 1), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("crash", "crash", "crash", "crash", "crash", "pass"));
  const auto reason = [&](std::size_t index) { return recorder.finished(index).reason; };
  EXPECT_THAT(reason(0), StartsWith("rank 0 died: exit 0"));
  EXPECT_THAT(reason(1), StartsWith("rank 0 died: exit 3"));
  EXPECT_THAT(reason(2), StartsWith("rank 0 died: exit 4"));
  EXPECT_THAT(reason(3), StartsWith("rank 0 died: signal 11 (SIGSEGV)"));
  EXPECT_THAT(reason(4), StartsWith("rank 0 died: signal 9 (SIGKILL)"));
  EXPECT_THAT(recorder.all<ForkServerTold>(), SizeIs(1)) << "one server forks every pool";
  EXPECT_THAT(recorder.all<PoolReady>(), SizeIs(6));
}

TEST_F(ForkedRanks, AreKilledAtTheirDeadline) {
  RunConfig config = forked_config("worker");
  std::vector<Item> cases = fake_cases({"hang", "pass"}, 2);
  cases[0].timeout = milliseconds(300);
  run(cases, config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("timeout", "pass"));
}

// Forked ranks execute no program, so /proc shows the environment of the fork server for them, except for the tag.
TEST_F(ForkedRanks, TakeWithThemWhatTheyLeftBehind) {
  for (const char* const model : {"daemon", "child"}) {
    const Recorder each = run(fake_cases({model, "pass"}, 2), forked_config("worker"));
    EXPECT_THAT(each.outcomes(), ElementsAre("pass", "pass"));
    EXPECT_THAT(each.all<PoolRetired>()[0].leftovers, IsEmpty());
    EXPECT_THAT(processes_left(), IsEmpty()) << model;
  }
}

TEST_F(ForkedRanks, OfPoolsSideBySideAreForkedByOneServer) {
  RunConfig config = forked_config("worker");
  config.slots = 6;
  std::vector<Item> cases;
  for (const int ranks : {1, 2, 3}) {
    for (int i = 0; i < 3; ++i) cases.push_back(fake_case(i == 1 ? "signal_9" : "pass", ranks));
  }
  run(cases, config, recorder);
  EXPECT_THAT(recorder.outcomes(),
              ElementsAre("pass", "crash", "pass", "pass", "crash", "pass", "pass", "crash", "pass"));
  EXPECT_THAT(recorder.all<ForkServerTold>(), SizeIs(1));
}

TEST_F(ForkedRanks, OfAServerThatIsReadyMayImportByThemselves) {
  run({fake_case("pass", 2)}, forked_config("alone"), recorder);
  const auto told = recorder.all<ForkServerTold>();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_TRUE(told[0].ready);
  EXPECT_EQ(told[0].reason, "the test says no");
  EXPECT_EQ(recorder.all<PoolReady>().at(0).worker, "forked");
}

TEST_F(ForkedRanks, MayStartBeforeTheServerSaysWhatTheAdapterSkips) {
  RunConfig config = forked_config("asks");
  config.slots = 1;
  run({fake_case("pass", 1), fake_case("undeclared", 2)}, config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "skip"));
  EXPECT_EQ(recorder.finished(1).reason, "undeclared");
  EXPECT_THAT(recorder.all<PoolSpawned>(), SizeIs(1)) << "a pool started for a case that is skipped";
}

TEST_F(ForkedRanks, AreAwaitedLongerWhileTheServerImportsAnew) {
  RunConfig config = forked_config("imports");
  config.fork_patience = milliseconds(2000);
  run(fake_cases({"signal_9", "pass"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("crash", "pass"));
  EXPECT_THAT(recorder.all<ForkServerTold>(), SizeIs(1)) << "it was given up";
}

TEST_F(ForkedRanks, AreStartedWhenTheirServerIsReadyWhichIsNoPartOfTheirStart) {
  run({fake_case("pass", 2)}, forked_config("worker"), recorder);
  const PoolReady ready = recorder.all<PoolReady>().at(0);
  EXPECT_LE(recorder.all<ForkServerTold>().at(0).start_ms + ready.spawn_to_ready_ms, ready.at_ms.value());
}

struct Refusal {
  std::string mode;
  std::string reason;
};
// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for PrintTo by this name
void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.mode;
}
class ForkServerOfNoUse : public ForkedRanks, public testing::WithParamInterface<Refusal> {};

TEST_P(ForkServerOfNoUse, SaysWhyOnceAndRanksAreStartedOneByOne) {
  RunConfig config = forked_config(GetParam().mode);
  run(fake_cases({"pass", "sigkill@0", "pass"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "crash", "pass"));
  const auto told = recorder.all<ForkServerTold>();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_FALSE(told[0].ready);
  EXPECT_THAT(told[0].reason, HasSubstr(GetParam().reason));
}

INSTANTIATE_TEST_SUITE_P(
    Refusals, ForkServerOfNoUse,
    testing::Values(Refusal{"thread", "threads exist after the imports"}, Refusal{"says_no", "the test says no"},
                    Refusal{"exits", "ended (exit 3); its last words: no license for this machine"}),
    [](const auto& info) { return info.param.mode; });

// Its ranks would do what the server does.
TEST_F(ForkedRanks, DoNotStartIfTheirServerHangsOrFindsThatTheyCannot) {
  for (const auto& [mode, reason] :
       {std::pair{"hangs", "the fork server was not ready within 500 ms (--start-timeout)"},
        std::pair{"broken", "the test has no license"}}) {
    RunConfig config = forked_config(mode);
    config.start_timeout = milliseconds(std::string{mode} == "hangs" ? 500 : 60000);
    const Recorder each = run({fake_case("pass", 1), fake_case("pass", 2), fake_case("pass", 2)}, config);
    EXPECT_THAT(each.outcomes(), ElementsAre("infra", "infra", "infra"));
    EXPECT_EQ(each.finished(0).reason, fmt::format("the pool cannot start: {}", reason));
    EXPECT_THAT(each.all<PoolSpawned>(), Each(testing::Field(&PoolSpawned::pids, IsEmpty())));
    EXPECT_THAT(each.all<ForkServerTold>(), IsEmpty());
    if (std::string{mode} == "broken") {
      EXPECT_THAT(each.finished(0).stderr_tails.at(0).text, HasSubstr("where it looked for one"));
    }
  }
}

class LostForkServer : public ForkedRanks, public testing::WithParamInterface<Refusal> {};

// The first pool is forked, with two ranks. The server is lost at its third order, which forks the first rank of the
// second pool.
TEST_P(LostForkServer, LetsThePoolStartWithoutIt) {
  RunConfig config = forked_config(GetParam().mode);
  // Only a server that stalls makes the driver wait for so long.
  if (GetParam().mode == "stalls") config.fork_patience = milliseconds(1000);
  run(fake_cases({"signal_9", "pass"}), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("crash", "pass"));
  const auto told = recorder.all<ForkServerTold>();
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_TRUE(told[0].ready);
  EXPECT_FALSE(told[1].ready);
  EXPECT_THAT(told[1].reason, HasSubstr(GetParam().reason));
  EXPECT_EQ(recorder.all<PoolReady>().back().worker.find("forked"), std::string::npos);
  EXPECT_THAT(recorder.retirements(), ElementsAre("crash", "finished")) << "the pool is started once, in another way";
}

INSTANTIATE_TEST_SUITE_P(Losses, LostForkServer,
                         testing::Values(Refusal{"dies", "signal 9 (SIGKILL)"},
                                         Refusal{"stalls", "no answer within 1000 ms"},
                                         Refusal{"babbles", "a line that is not a message"}),
                         [](const auto& info) { return info.param.mode; });

TEST_F(ForkedRanks, EndWithARunThatIsStoppedWhileTheServerStarts) {
  RunConfig config = forked_config("hangs");
  config.global_timeout = milliseconds(500);
  const auto start = std::chrono::steady_clock::now();
  run({fake_case("pass")}, config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("not-run"));
  EXPECT_THAT(recorder.all<ForkServerTold>(), IsEmpty());
  EXPECT_LT(ms_between(start, std::chrono::steady_clock::now()), 15000);
}

TEST_F(ForkedRanks, EndWithARunThatIsStoppedWhileAServerThatHangsForksThem) {
  RunConfig config = forked_config("interrupts");
  config.fork_patience = milliseconds(500);
  EXPECT_TRUE(run({fake_case("pass", 3)}, config, recorder).interrupted);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("not-run"));
  EXPECT_THAT(recorder.retirements(), ElementsAre("interrupted"));
  EXPECT_THAT(recorder.all<ForkServerTold>().back().reason, HasSubstr("no answer within 500 ms"));
}

TEST_F(ForkedRanks, OfAnInterpreterThatIsMissingAreMissing) {
  RunConfig config = forked_config("worker");
  config.fork_server[0] = "/nowhere/python3";
  config.worker_command = {"/nowhere/python3", "-m", "cp_pool.worker"};
  run({fake_case("pass")}, config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("infra"));
  EXPECT_THAT(recorder.finished(0).reason, HasSubstr("cannot run \"/nowhere/python3\": No such file"));
  EXPECT_THAT(recorder.all<ForkServerTold>(), IsEmpty());
}

}  // namespace
}  // namespace cp_pool::driver_test
