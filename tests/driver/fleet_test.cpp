// Several pools side by side, of one key or of several.
#include <csignal>
#include <cstddef>
#include <optional>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "driver/os/spawn.h"
#include "tests/driver/fault_outcomes.h"
#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using namespace ::testing;

RunConfig with_slots(int slots) {
  RunConfig config = fake_config();
  config.slots = slots;
  return config;
}

// Lets the pool go on that runs an until_sigusr1. If the pool has not begun to wait yet, the signal stays pending.
void let_go_on(const Recorder& recorder, const PoolId& id) {
  for (const PoolSpawned& pool : recorder.all<PoolSpawned>()) {
    if (pool.pool.key == id.key && pool.pool.generation == id.generation) ::kill(pool.pids.at(0), SIGUSR1);
  }
}

// Lets all waiting cases go on when `cases` of them have started.
void let_go_on_together(Recorder& recorder, std::size_t cases) {
  recorder.on<CaseStarted>([&recorder, cases](const CaseStarted&) {
    if (recorder.all<CaseStarted>().size() != cases) return;
    for (const CaseStarted& started : recorder.all<CaseStarted>()) let_go_on(recorder, started.pool);
  });
}

TEST(Fleet, RunsCasesOfAKeyOnSeveralPoolsSideBySide) {
  Recorder recorder;
  let_go_on_together(recorder, 3);
  run(fake_cases({"until_sigusr1", "until_sigusr1", "until_sigusr1"}), with_slots(6), recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass", "pass"));
  EXPECT_THAT(recorder.retirements(), ElementsAre("finished", "finished", "finished"));
  EXPECT_THAT(processes_left(), IsEmpty());
}

// Two keys that need the same two GPUs. The larger one is first.
RunConfig on_two_gpus() {
  RunConfig config = with_slots(2);
  config.device = "cuda";
  return config;
}

TEST(Fleet, OfGpusStartsTheNextKeysPoolWhileACaseRunsOnItsSlots) {
  Recorder recorder;
  // The first key's case ends when the second key's pool is ready.
  recorder.on<PoolReady>([&recorder](const PoolReady& ready) {
    if (ready.world_size == 1) let_go_on(recorder, {"cuda/2", 1});
  });
  run({fake_case("until_sigusr1", 2), fake_case("pass", 1)}, on_two_gpus(), recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "pass"));
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(Fleet, OfGpusThatIsTimedStartsAPoolWhenItsSlotsAreFree) {
  Recorder recorder;
  let_go_on_together(recorder, 1);
  std::size_t finished_before = 0;
  const auto go_on = recorder.on_each;
  recorder.on_each = [&](const Event& event) {
    go_on(event);
    const auto* spawned = std::get_if<PoolSpawned>(&event);
    if (spawned != nullptr && spawned->world_size == 1) finished_before = recorder.all<CaseFinished>().size();
  };
  RunConfig config = on_two_gpus();
  config.perf.emplace();
  run({fake_case("until_sigusr1", 2), fake_case("pass", 1)}, config, recorder);
  EXPECT_EQ(finished_before, 1U);
}

void write(const Pipe& pipe, const std::string& lines) {
  ASSERT_EQ(::write(pipe.write.get(), lines.data(), lines.size()), static_cast<ssize_t>(lines.size()));
}

// A case with a fault on one of four pools, while cases run on the other three pools.
class FaultBesideOthers : public testing::TestWithParam<std::string> {};

TEST_P(FaultBesideOthers, CostsItsOwnPoolAlone) {
  constexpr std::size_t kWaiting = 3;
  const std::string wait = "until_sigusr1\n";
  Pipe pipe = make_pipe();
  write(pipe, wait + wait + wait);
  Recorder recorder;
  recorder.on_each = [&](const Event& event) {
    // The faulty case is sent when each of the three has a pool, so that none of them is sent to the pool that dies.
    if (std::holds_alternative<CaseStarted>(event) && recorder.all<CaseStarted>().size() == kWaiting) {
      write(pipe, GetParam() + "\npass\n");
      pipe.write.reset();
    }
    if (!std::holds_alternative<CaseFinished>(event) || recorder.all<CaseFinished>().size() != 2) return;
    for (const CaseStarted& started : recorder.all<CaseStarted>()) {
      if (started.index < kWaiting) let_go_on(recorder, started.pool);
    }
  };
  const auto read_case = [](const protocol::Line& line) -> std::optional<Item> {
    Item out = fake_case(line.text, 1);
    if (line.text == "hang") out.timeout = std::chrono::milliseconds(500);
    return out;
  };
  run_stream(pipe.read.get(), read_case, with_slots(4), {}, recorder, kWaiting + 2);
  const std::vector<std::string> outcomes = recorder.outcomes();
  EXPECT_THAT(fault_outcomes().at(GetParam()), Contains(outcomes.at(3))) << recorder.finished(3).reason;
  std::set<int> pools;
  for (const std::size_t other : {0, 1, 2}) {
    EXPECT_EQ(outcomes.at(other), "pass");
    EXPECT_EQ(recorder.finished(other).attempts, 1);
    pools.insert(recorder.finished(other).pool->generation);
  }
  EXPECT_THAT(pools, SizeIs(3));
  EXPECT_EQ(outcomes.at(4), "pass");
  // A faulty case that had not started when its pool died is sent again, so more than one pool may be lost.
  std::size_t lost = 0;
  for (const PoolRetired& retired : recorder.all<PoolRetired>()) {
    if (retired.reason == RetireReason::finished) continue;
    ++lost;
    EXPECT_FALSE(pools.contains(retired.pool.generation)) << retired.detail;
    EXPECT_THAT(retired.leftovers, IsEmpty());
  }
  EXPECT_LE(lost, static_cast<std::size_t>(recorder.finished(3).attempts));
  EXPECT_THAT(processes_left(), IsEmpty());
}

std::vector<std::string> every_fault() {
  std::vector<std::string> out;
  for (const auto& [kind, outcomes] : fault_outcomes()) out.push_back(kind);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Each, FaultBesideOthers, testing::ValuesIn(every_fault()),
                         [](const auto& info) { return info.param; });

// Without `spare`, two cases that take no time would run on one pool.
TEST(Fleet, HasASparePoolBesideOneThatWorksIfItIsAskedTo) {
  RunConfig config = with_slots(2);
  config.spare = true;
  const Recorder recorder = run(fake_cases({"pass", "pass"}, 1), config);
  EXPECT_THAT(recorder.outcomes(), Each("pass"));
  EXPECT_THAT(recorder.all<PoolSpawned>(), SizeIs(2));
}

TEST(Fleet, EndsTheRestOfTheRunAtTheFirstFailureButNotWhatRuns) {
  RunConfig config = with_slots(2);
  config.max_failures = 1;
  Recorder recorder;
  recorder.on<CaseFinished>([&](const CaseFinished& finished) {
    if (finished.index == 3) let_go_on(recorder, recorder.all<CaseStarted>().at(0).pool);
  });
  const RunFinished finished = run(fake_cases({"until_sigusr1", "fail", "pass", "pass"}, 1), config, recorder);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "fail", "not-run", "not-run"));
  EXPECT_EQ(finished.exit_code, 100);
}

TEST(Fleet, IsInterruptedAsAWhole) {
  Recorder recorder;
  recorder.on<CaseStarted>([&](const CaseStarted&) {
    if (recorder.all<CaseStarted>().size() == 3) ::raise(SIGINT);
  });
  const std::vector<std::string> models(5, "until_cancelled");
  EXPECT_EQ(run(fake_cases(models, 1), with_slots(3), recorder).exit_code, 130);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("cancelled", "cancelled", "cancelled", "not-run", "not-run"));
  EXPECT_THAT(recorder.retirements(), ElementsAre("interrupted", "interrupted", "interrupted"));
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(Fleet, TriesAWorkerThatCannotStartOnOnePool) {
  RunConfig config = fake_config({"--start=exit_127"});
  config.slots = 8;
  const Recorder recorder = run(fake_cases(std::vector<std::string>(100, "pass"), 1), config);
  EXPECT_THAT(recorder.outcomes(), Each("infra"));
  EXPECT_THAT(recorder.all<PoolSpawned>(), SizeIs(1));
}

TEST(Fleet, SaysWhichSlotsEachPoolHolds) {
  Recorder recorder;
  let_go_on_together(recorder, 2);
  run(fake_cases({"until_sigusr1", "until_sigusr1"}), with_slots(4), recorder);
  std::vector<std::vector<int>> slots;
  for (const PoolSpawned& pool : recorder.all<PoolSpawned>()) slots.push_back(pool.slots);
  EXPECT_THAT(slots, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  const Recorder shared = run(fake_cases({"pass"}), with_slots(1));
  EXPECT_THAT(shared.all<PoolSpawned>().at(0).slots, ElementsAre(0));
}

// The value of CUDA_VISIBLE_DEVICES in each rank of each pool. Expects that it is what the pool's event says.
std::multiset<std::string> gpus_seen(RunConfig config, int cases) {
  const TemporaryPath folder("gpus");
  std::filesystem::create_directory(folder.get());
  config.device = "cuda";
  config.gpus = {"4", "5", "GPU-1d2c", "7"};
  const std::string script = R"(echo "$CUDA_VISIBLE_DEVICES" > "$1/$CP_POOL_TAG.$RANK"; exec "$0")";
  config.worker_command = {"sh", "-c", script, config.worker_command.front(), folder.get().string()};
  Recorder recorder;
  let_go_on_together(recorder, static_cast<std::size_t>(cases));
  run(fake_cases(std::vector<std::string>(static_cast<std::size_t>(cases), "until_sigusr1")), config, recorder);
  EXPECT_THAT(recorder.outcomes(), Each("pass"));
  std::multiset<std::string> told;
  for (const PoolSpawned& pool : recorder.all<PoolSpawned>()) {
    for (int rank = 0; rank < pool.world_size; ++rank) told.insert(fmt::format("{}", fmt::join(pool.gpus, ",")));
  }
  std::multiset<std::string> out;
  for (const auto& file : std::filesystem::directory_iterator(folder.get())) {
    std::string line;
    std::ifstream in(file.path());
    std::getline(in, line);
    out.insert(line);
  }
  EXPECT_EQ(out, told);
  return out;
}

TEST(Fleet, ShowsEachPoolTheGpusOfItsSlots) {
  EXPECT_THAT(gpus_seen(with_slots(0), 2), ElementsAre("4,5", "4,5", "GPU-1d2c,7", "GPU-1d2c,7"));
}

TEST(Fleet, ShowsAllGpusToAPoolThatIsAlone) {
  EXPECT_THAT(gpus_seen(with_slots(1), 1), ElementsAre("4,5,GPU-1d2c,7", "4,5,GPU-1d2c,7"));
}

}  // namespace
}  // namespace cp_pool::driver_test
