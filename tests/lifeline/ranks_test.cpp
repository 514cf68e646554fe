// Real ranks that hold a lifeline. They are started as a launcher would, with a MASTER_PORT on which nobody listens.
#include <memory>
#include <set>

#include <gmock/gmock.h>

#include "tests/lifeline/process.h"
#include "worker/testing/worker_fixture.h"

namespace cp_pool::test {
namespace {

using lifeline_test::Process;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class RanksWithALifeline : public Worker {
 protected:
  void SetUp() override {
    server = std::make_unique<Process>(std::vector<std::string>{CP_POOL_TEST_DRIVER, "2"}, lifeline_test::Variables{});
    for (int i = 0; i < 2; ++i) {
      const std::string line = server->line();
      variables[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
    }
    ASSERT_TRUE(variables.contains("CP_POOL_LIFELINE"));
  }
  [[nodiscard]] WorkerGroup::Config config(std::vector<std::string> arguments = {}) const {
    WorkerGroup::Config out = with(std::move(arguments));
    out.environment = variables;
    out.as_open_mpi = true;
    return out;
  }
  [[nodiscard]] WorkerGroup::Config adapter() const {
    WorkerGroup::Config out =
        config({"-m", "cp_pool.worker", CP_POOL_SOURCE_DIR "/python/tests/adapters/plain.py:plain"});
    out.binary = CP_POOL_SOURCE_DIR "/.venv/bin/python";
    out.environment["PYTHONPATH"] = CP_POOL_TEST_PYTHONPATH;
    out.environment["PYTHONDONTWRITEBYTECODE"] = "1";
    return out;
  }
  // Reads lines of the server until each of these was among them. Returns those that were missing at the end of its
  // output.
  std::multiset<std::string> missing(std::multiset<std::string> wanted) const {
    while (!wanted.empty()) {
      const std::string line = server->line();
      if (const auto found = wanted.find(line); found != wanted.end()) wanted.erase(found);
      if (line.empty() && server->poll_end()) break;
    }
    return wanted;
  }
  void expect_to_meet_run_and_end(const WorkerGroup::Config& config) const {
    ReadyGroup group(config);
    expect_pass(group.run("one"));
    const std::multiset<std::string> none;
    EXPECT_EQ(missing({"[CP_POOL_FENCE] 1", "[CP_POOL_FENCE] 1"}), none) << "stderr goes to the server";
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(group.read_stderr(rank), "") << "and nowhere else";
    group.send(protocol::ShutdownRequest{});
    EXPECT_EQ(group.wait_all(kEndLimit), (std::vector<std::string>(2, "exit 0")));
    EXPECT_EQ(missing({"exit 0", "exit 0"}), none);
  }
  void expect_not_to_outlive_the_server(WorkerGroup& group) const {
    server->kill(SIGKILL);
    EXPECT_EQ(group.wait_all(kEndLimit), (std::vector<std::string>(2, "exit 75")));
    for (int rank = 0; rank < 2; ++rank) EXPECT_THAT(group.read_stderr(rank), HasSubstr("ends: cp-pool has ended"));
  }

  std::unique_ptr<Process> server;
  std::map<std::string, std::string> variables;
};

TEST_F(RanksWithALifeline, MeetWhereRank0SaysAndRunACase) {
  expect_to_meet_run_and_end(config());
}

TEST_F(RanksWithALifeline, OfAnAdapterDoSoToo) {
  expect_to_meet_run_and_end(adapter());
}

TEST_F(RanksWithALifeline, DoNotOutliveTheServer) {
  ReadyGroup group(config());
  expect_pass(group.run("one"));
  expect_not_to_outlive_the_server(group);
}

TEST_F(RanksWithALifeline, DoNotOutliveTheServerInTheMiddleOfACase) {
  ReadyGroup group(config({"--inject", "hang@1:inside"}));
  group.start_run("hangs");
  group.next<protocol::StartedEvent>();
  expect_not_to_outlive_the_server(group);
}

TEST_F(RanksWithALifeline, OfAnAdapterDoNotOutliveTheServer) {
  ReadyGroup group(adapter());
  expect_pass(group.run("one"));
  expect_not_to_outlive_the_server(group);
}

// Rank 0 hangs, so rank 1 waits to learn where rank 0 is.
TEST_F(RanksWithALifeline, DoNotOutliveTheServerWhileTheyStart) {
  WorkerGroup group(config({"--inject", "hang@0:start"}));
  EXPECT_THAT(server->line(), StartsWith("joined "));
  EXPECT_THAT(server->line(), StartsWith("joined "));
  expect_not_to_outlive_the_server(group);
}

}  // namespace
}  // namespace cp_pool::test
