// Which runs on a service share pools, and when its pools end.
#include <set>

#include <fmt/format.h>

#include "tests/service/testing/service_fixture.h"

namespace cp_pool::service_test {
namespace {

namespace fs = std::filesystem;
using namespace ::testing;

class Pools : public Service {
 protected:
  // Runs a case of a new client. Returns the pid of rank 0 of the pool on which it ran.
  int rank_of(const json& open = json::object(), int cp_size = 1) {
    RawClient client = RawClient::greeted();
    const std::vector<json> events = client.run("pass", open, cp_size);
    EXPECT_THAT(outcomes_in(events), ElementsAre("pass: pass"));
    return of_type(events, "pool_spawned").at(0)["pids"][0];
  }
  // A copy of the fake worker. Returns its path.
  std::string build_of_worker(const std::string& name) {
    fs::copy_file(kFakeWorker, path(name));
    return path(name);
  }
  // Replaces the file, as a build does: another file gets the name.
  void build_again(const std::string& worker) {
    fs::copy_file(kFakeWorker, worker + ".new");
    fs::rename(worker + ".new", worker);
  }
};

json environment_with(const std::string& variable) {
  return {{"environment", {std::string("PATH=") + std::getenv("PATH"), variable}}};
}

TEST_F(Pools, AreSharedByRunsThatAreEqualInAllThatMatters) {
  const StartedService service({"--slots", "4"});
  const int first = rank_of(environment_with("OMP_NUM_THREADS=1"));
  EXPECT_EQ(rank_of(environment_with("OMP_NUM_THREADS=1")), first);
  // Another terminal and another deadline make no difference.
  json other = environment_with("OMP_NUM_THREADS=1");
  other["environment"].push_back("TERM=dumb");
  other["environment"].push_back("SSH_TTY=/dev/pts/9");
  other["timeout_ms"] = 12345;
  other["title"] = "another";
  EXPECT_EQ(rank_of(other), first);
  EXPECT_THAT(RawClient::greeted().status()["pools"], SizeIs(1));
}

TEST_F(Pools, AreOthersForAnotherEnvironmentFolderWorldSizeOrBuild) {
  const StartedService service({"--slots", "8"});
  const int first = rank_of();
  std::set<int> ranks{first};
  ranks.insert(rank_of(environment_with("OMP_NUM_THREADS=1")));
  ranks.insert(rank_of(environment_with("OMP_NUM_THREADS=2")));
  ranks.insert(rank_of({{"folder", path("")}}));
  ranks.insert(rank_of({}, 2));
  ranks.insert(rank_of({{"worker", {build_of_worker("build-a")}}}));
  ranks.insert(rank_of({{"worker", {build_of_worker("build-b")}}}));
  EXPECT_THAT(ranks, SizeIs(7));
  EXPECT_EQ(rank_of(), first);
}

// Over weeks a service sees many environments. It keeps nothing of an environment that no run and no pool has any more.
TEST_F(Pools, LeaveNothingOfEnvironmentsThatNobodyHasAnyMore) {
  const StartedService service({"--slots", "1"});
  RawClient client = RawClient::greeted();
  int count = 0;
  const auto run_in_another = [&](bool with_case) {
    const std::string run = std::to_string(++count);
    json open = environment_with("OMP_NUM_THREADS=" + run);
    for (int i = 0; i < 10; ++i) {
      open["environment"].push_back(fmt::format("CUDA_LONG_{}={}", i, std::string(100'000, 'x')));
    }
    client.open(run, open);
    if (with_case) client.submit(run, "pass");
    client.close_run(run);
    EXPECT_THAT(client.outcomes_of(run), SizeIs(with_case ? 1 : 0));
  };
  std::int64_t before = 0;
  for (int i = 0; i < 30; ++i) {
    if (i == 10) before = memory_kib_of(service.pid());
    run_in_another(i % 3 == 0);
  }
  // A copy of each would be 20 MiB.
  EXPECT_LT(memory_kib_of(service.pid()) - before, 10 << 10);
  EXPECT_THAT(client.status()["pools"], SizeIs(1));
}

// Each run is told of the fork server before its first pool, like a local run, and is told when it ends.
TEST_F(Pools, TellEachRunOfTheForkServerOfItsRanks) {
  const StartedService service({"--slots", "1"});
  const json open = {{"fork_server", {"python3", CP_POOL_TEST_FORK_SERVER, "exec"}}};
  json first = json::object();
  for (int i = 0; i < 2; ++i) {  // the first run starts it, and the second finds it
    RawClient client = RawClient::greeted();
    std::vector<std::string> types;
    for (const json& event : client.run("pass", open)) {
      types.push_back(event["type"]);
      if (types.back() != "fork_server") continue;
      EXPECT_EQ(event["ready"], true);
      EXPECT_EQ(event["pid"], first.value("pid", event["pid"].get<int>()));
      first = event;
    }
    EXPECT_THAT(types, ElementsAre("run_started", "fork_server", "pool_spawned", "pool_ready", "case_started",
                                   "case_finished", "run_finished"));
  }
  RawClient client = RawClient::greeted();
  client.open("loses it", open);
  client.submit("loses it", "until_cancelled");
  client.event("case_started");
  ::kill(first["pid"].get<int>(), SIGKILL);
  const json lost = client.event("fork_server");
  EXPECT_EQ(lost["ready"], false);
  EXPECT_THAT(lost["reason"].get<std::string>(), HasSubstr("SIGKILL"));
}

// A rank has the client's variables where they matter to the worker, and otherwise the variables of the service.
TEST_F(Pools, GiveTheirRanksTheEnvironmentAndFolderOfTheClient) {
  const ScopedVariable own{"MY_OWN", "of the service"};
  const StartedService service({"--slots", "2"});
  json open = environment_with("OMP_NUM_THREADS=7");
  open["environment"].push_back("MY_OWN=of the client");
  open["folder"] = path("");
  const std::string rank = "/proc/" + std::to_string(rank_of(open));
  const std::string environment = read_file(rank + "/environ");
  EXPECT_THAT(environment, HasSubstr("OMP_NUM_THREADS=7"));
  EXPECT_THAT(environment, HasSubstr("MY_OWN=of the service"));
  EXPECT_TRUE(fs::equivalent(fs::read_symlink(rank + "/cwd"), path("")));
}

TEST_F(Pools, OfTheCommandLineAreSharedBetweenTerminals) {
  const StartedService service({"--slots", "2"});
  std::vector<std::string> pools;
  for (const char* terminal : {"xterm", "screen"}) {
    const ScopedVariable variable{"TERM", terminal};
    const Finished done = submit({"pass"}, {"--json"}, 2);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    pools.push_back(json::parse(done.out)["pool"].dump());
  }
  EXPECT_EQ(pools[0], pools[1]);
}

TEST_F(Pools, RunCasesWithTheDeadlineOfTheirClient) {
  const StartedService service({"--slots", "1"});
  RawClient patient = RawClient::greeted();
  patient.open("patient", {{"timeout_ms", 600000}});
  patient.submit("patient", "sleeps_700");
  patient.event("case_started");
  RawClient hasty = RawClient::greeted();
  const std::vector<json> events = hasty.run("hang", {{"timeout_ms", 300}});
  EXPECT_THAT(outcomes_in(events), ElementsAre("hang: timeout"));
  for (const json& event : of_type(events, "case_finished")) {
    EXPECT_THAT(event["reason"].get<std::string>(), HasSubstr("300 ms"));
  }
  patient.submit("patient", "sleeps_700");
  patient.close_run("patient");
  EXPECT_THAT(patient.outcomes_of("patient"), ElementsAre("sleeps_700: pass", "sleeps_700: pass"));
}

TEST_F(Pools, OfAWorkerThatWasBuiltAgainAreReplacedBeforeTheNextCase) {
  const StartedService service({"--slots", "2"});
  const json open = {{"worker", {build_of_worker("mine")}}};
  const int other = rank_of();
  const int before = rank_of(open);
  EXPECT_EQ(rank_of(open), before);
  build_again(path("mine"));
  const int after = rank_of(open);
  EXPECT_NE(after, before);
  EXPECT_EQ(rank_of(open), after);
  EXPECT_EQ(rank_of(), other) << "another worker's pool has ended as well";
}

// A script is not among the mapped files of its ranks. The service finds it in the command line.
TEST_F(Pools, OfAScriptThatWasEditedAreReplacedBeforeTheNextCase) {
  const StartedService service({"--slots", "2"});
  fs::copy_file(CP_POOL_SCRIPTED_WORKER, path("worker.py"));
  const json open = {{"worker", {"python3", "worker.py"}}, {"folder", path("")}};
  const int before = rank_of(open);
  EXPECT_EQ(rank_of(open), before);
  write_file(path("worker.py"), read_file(path("worker.py")) + "\n# edited\n");
  EXPECT_NE(rank_of(open), before);
}

// A running case ends normally if its worker is built again meanwhile.
TEST_F(Pools, OfAWorkerThatIsBuiltWhileItRunsEndTheirCaseFirst) {
  const StartedService service({"--slots", "1"});
  RawClient client = RawClient::greeted();
  client.open("run", {{"worker", {build_of_worker("mine")}}});
  client.submit("run", "until_sigusr1");
  const int before = client.event("pool_spawned")["pids"][0];
  client.event("case_started");
  build_again(path("mine"));
  client.submit("run", "pass");
  client.status();
  ::kill(before, SIGUSR1);
  client.close_run("run");
  const std::vector<json> events = client.events_of("run");
  EXPECT_THAT(outcomes_in(events), ElementsAre("until_sigusr1: pass", "pass: pass"));
  EXPECT_THAT(of_type(events, "pool_spawned"), SizeIs(1));
}

TEST_F(Pools, EndWhenTheyHaveBeenIdleForLong) {
  const StartedService service({"--slots", "2", "--idle", "100ms"});
  rank_of();
  RawClient client = RawClient::greeted();
  wait_until("the pool has ended", [&] { return client.status()["pools"].empty(); });
  EXPECT_EQ(client.status()["devices"][0]["held"], 0);
  rank_of();
}

TEST_F(Pools, StayOtherwise) {
  const StartedService service({"--slots", "2"});
  const int rank = rank_of();
  EXPECT_EQ(rank_of(), rank);
  json pool;
  wait_until("the pool is idle", [&] {
    pool = RawClient::greeted().status()["pools"][0];
    return pool["state"] == "idle";
  });
  EXPECT_EQ(pool["cases"], 2);
}

// Idle pools end to make room for pools of other kinds.
TEST_F(Pools, ThatAreIdleGiveTheirSlotsToOtherKinds) {
  const StartedService service({"--slots", "2"});
  rank_of({}, 2);
  rank_of();
  rank_of({{"folder", path("")}}, 2);
  EXPECT_LE(RawClient::greeted().status()["devices"][0]["held"], 2);
}

TEST_F(Pools, ThatCannotStartAreTheirClientsInfraAlone) {
  const StartedService service({"--slots", "2"});
  RawClient client = RawClient::greeted();
  const std::vector<json> events = client.run("pass", {{"worker", {kFakeWorker, "--start=exit_1"}}});
  EXPECT_THAT(outcomes_in(events), ElementsAre("pass: infra"));
  EXPECT_EQ(events.back()["exit_code"], 96);
  EXPECT_THAT(outcomes_in(client.run("pass", {{"worker", {path("no such worker")}}})), ElementsAre("pass: infra"));
  rank_of();
}

}  // namespace
}  // namespace cp_pool::service_test
