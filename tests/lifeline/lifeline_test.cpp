// Lifelines between processes: what each side notices when a rank or a driver dies, is stopped or computes.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include <asio/io_context.hpp>
#include <gmock/gmock.h>

#include "driver/ranks/driver_socket.h"
#include "tests/lifeline/process.h"

namespace cp_pool {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using lifeline_test::Process;
using lifeline_test::Variables;
using namespace ::testing;

constexpr auto kPatience = 60s;

Variables of_rank(int rank, Variables more) {
  more.emplace_back("RANK", std::to_string(rank));
  more.emplace_back("WORLD_SIZE", "2");
  more.emplace_back("LOCAL_RANK", std::to_string(rank));
  return more;
}

std::unique_ptr<Process> start_rank(int rank, const Variables& lifeline, const std::string& what,
                                    const std::string& argument = "0") {
  return std::make_unique<Process>(std::vector<std::string>{CP_POOL_TEST_RANK, what, argument},
                                   of_rank(rank, lifeline));
}

// The lifeline server, the driver's end, is in this process; the rank is a process.
class ARank : public ::testing::Test {
 protected:
  void SetUp() override {
    DriverSocket::Config config;
    config.world_size = 2;
    server = std::make_unique<DriverSocket>(
        io, config,
        DriverSocket::Functions{
            .on_joined = [this](int rank, const lifeline::Joined& told) { joined[rank] = told; },
            .on_silent = [this](int rank) { log.push_back("silent " + std::to_string(rank)); },
            .on_heard_again = [this](int rank) { log.push_back("heard " + std::to_string(rank)); },
            .on_closed = [this](int rank, const std::string&) { log.push_back("closed " + std::to_string(rank)); },
            .on_stderr = [this](int rank, std::string_view bytes) { stderr_of[rank] += bytes; },
            .on_stderr_end = [this](int rank) { ended[rank] = true; }});
  }
  std::unique_ptr<Process> start(int rank, const std::string& what, const std::string& argument = "0") {
    return start_rank(rank, server->variables(), what, argument);
  }
  // Runs the server until `done`. Returns false if that takes longer than kPatience.
  bool run_until(const std::function<bool()>& done) {
    const auto give_up = Clock::now() + kPatience;
    while (!done() && Clock::now() < give_up) io.run_one_for(20ms);
    return done();
  }
  void run_for(std::chrono::milliseconds time) {
    const auto until = Clock::now() + time;
    run_until([&] { return Clock::now() >= until; });
  }

  asio::io_context io;
  std::unique_ptr<DriverSocket> server;
  std::map<int, lifeline::Joined> joined;
  std::map<int, std::string> stderr_of;
  std::map<int, bool> ended;
  std::vector<std::string> log;
};

TEST_F(ARank, ThatIsKilledIsSeenAtOnce) {
  const auto rank = start(1, "wait");
  ASSERT_TRUE(run_until([&] { return joined.contains(1); }));
  EXPECT_EQ(joined[1].pid, rank->pid());
  std::array<char, 256> name{};
  gethostname(name.data(), name.size());
  EXPECT_EQ(joined[1].host, name.data());
  rank->kill(SIGKILL);
  ASSERT_TRUE(run_until([&] { return server->ranks()[1].closed; }));
  EXPECT_THAT(log, ElementsAre("closed 1")) << "and not after a silence";
}

using ALongWaitForARank = ARank;

TEST_F(ALongWaitForARank, ThatIsStoppedIsSilentAndDoesNotStay) {
  const auto rank = start(1, "wait");
  ASSERT_TRUE(run_until([&] { return joined.contains(1); }));
  rank->stop();
  ASSERT_TRUE(run_until([&] { return !log.empty(); }));
  EXPECT_EQ(log.front(), "silent 1");
  ASSERT_TRUE(run_until([&] { return log.size() > 1; }));
  EXPECT_EQ(log.back(), "closed 1");
  EXPECT_EQ(rank->wait_for_end(), "signal 9") << "it cannot end itself, so the kernel does";
}

TEST_F(ALongWaitForARank, ThatComputesFindsNoSilence) {
  const auto rank = start(1, "spin");
  ASSERT_TRUE(run_until([&] { return joined.contains(1); }));
  run_for(7s);
  EXPECT_TRUE(log.empty()) << log.front();
}

TEST_F(ARank, LeavesItsLastWords) {
  const auto rank = start(1, "flood", "3000000");
  ASSERT_TRUE(run_until([&] { return ended[1]; }));
  EXPECT_EQ(rank->wait_for_end(), "signal 9");
  EXPECT_EQ(stderr_of[1].size(), 3000000 + 1 + std::string("last words\n").size());
  EXPECT_THAT(stderr_of[1], EndsWith("x\nlast words\n"));
}

TEST_F(ARank, IsGoneThoughAProcessThatItForkedIsThere) {
  const auto rank = start(1, "fork");
  ASSERT_TRUE(run_until([&] { return !log.empty(); }));
  EXPECT_THAT(log, ElementsAre("closed 1"));
  EXPECT_FALSE(ended[1]) << "the other process has its stderr";
}

TEST_F(ARank, ShowsItsStack) {
  const auto rank = start(1, "dump");
  ASSERT_TRUE(run_until([&] { return stderr_of[1].find("ready\n") != std::string::npos; }));
  server->show_stack(1);
  EXPECT_TRUE(run_until([&] {
    return stderr_of[1].find("the stack of the computing thread, innermost call last\n") != std::string::npos;
  })) << stderr_of[1];
}

TEST_F(ARank, ThatCannotShowItsStackYetGoesOn) {
  const auto rank = start(1, "wait");
  ASSERT_TRUE(run_until([&] { return joined.contains(1); }));
  server->show_stack(1);
  run_for(500ms);
  EXPECT_TRUE(log.empty());
  EXPECT_FALSE(rank->poll_end());
}

TEST_F(ARank, EndsWhenItIsTold) {
  const auto rank = start(1, "spin");
  ASSERT_TRUE(run_until([&] { return joined.contains(1); }));
  server->end_all();
  EXPECT_EQ(rank->wait_for_end(), "exit 75");
}

TEST_F(ARank, SaysHowItEnds) {
  const auto rank = start(1, "end", "77");
  ASSERT_TRUE(run_until([&] { return !log.empty(); }));
  EXPECT_THAT(log, ElementsAre("closed 1"));
  EXPECT_EQ(server->ranks()[1].ending, 77);
  EXPECT_EQ(rank->wait_for_end(), "exit 77");
}

TEST_F(ARank, LearnsWhereRank0Is) {
  const auto one = start(1, "await");
  ASSERT_TRUE(run_until([&] { return joined.contains(1); }));
  const auto zero = start(0, "announce");
  ASSERT_TRUE(run_until([&] { return !stderr_of[1].empty(); }));
  EXPECT_EQ(stderr_of[1], "node0 10.0.0.1:4711\n");
}

TEST_F(ARank, TriesEveryAddress) {
  Variables variables = server->variables();
  // Nobody listens on the first address, and another server on the second.
  DriverSocket other(io, {}, {});
  variables[0].second = "127.0.0.1:1," + lifeline::join_endpoints(other.endpoints()) + "," + variables[0].second;
  const auto rank = start_rank(1, variables, "wait");
  EXPECT_TRUE(run_until([&] { return joined.contains(1); }));
}

TEST_F(ALongWaitForARank, SaysWhomItCannotReach) {
  const auto rank =
      start_rank(1, {{"CP_POOL_LIFELINE", "127.0.0.1:1,[::1]:1"}, {"CP_POOL_LIFELINE_TOKEN", "0"}}, "wait");
  EXPECT_THAT(rank->line(), HasSubstr("rank 1 on host "));
  EXPECT_EQ(rank->wait_for_end(), "exit 75");
}

// The driver and the rank are both processes.
class ADriver : public ::testing::Test {
 protected:
  void SetUp() override {
    driver = std::make_unique<Process>(std::vector<std::string>{CP_POOL_TEST_DRIVER}, Variables{});
    Variables variables;
    for (int i = 0; i < 2; ++i) {
      const std::string line = driver->line();
      variables.emplace_back(line.substr(0, line.find('=')), line.substr(line.find('=') + 1));
    }
    rank = start_rank(0, variables, "spin");
    ASSERT_EQ(driver->line(), "joined " + std::to_string(rank->pid()));
  }
  std::chrono::duration<double> time_to_end() const {
    const auto start = Clock::now();
    ended = rank->wait_for_end();
    return Clock::now() - start;
  }

  std::unique_ptr<Process> driver;
  std::unique_ptr<Process> rank;
  mutable std::string ended;
};

TEST_F(ADriver, ThatIsKilledIsNotOutlived) {
  driver->kill(SIGKILL);
  time_to_end();
  EXPECT_EQ(ended, "exit 75");
  EXPECT_THAT(rank->line(), HasSubstr("ends: cp-pool has ended"));
}

TEST_F(ADriver, ThatIsKilledIsNotOutlivedByARankThatIsStopped) {
  rank->stop();
  driver->kill(SIGKILL);
  EXPECT_LT(time_to_end(), 20s);
  EXPECT_EQ(ended, "signal 9");
}

using ALongWaitForADriver = ADriver;

TEST_F(ALongWaitForADriver, ThatIsSilentIsTakenForGone) {
  driver->stop();
  const auto took = time_to_end();
  EXPECT_GT(took, 3s);
  EXPECT_LT(took, 20s);
  EXPECT_EQ(ended, "exit 75");
  EXPECT_THAT(rank->line(), HasSubstr("ends: cp-pool has been silent for 5 s"));
}

}  // namespace
}  // namespace cp_pool
