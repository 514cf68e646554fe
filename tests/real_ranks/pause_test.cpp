// A run with real ranks that is stopped and continued, as Ctrl-Z and fg do.
#include <csignal>
#include <sys/wait.h>

#include <gmock/gmock.h>

#include "tests/real_ranks/driver_run.h"

namespace cp_pool::test {
namespace {

using nlohmann::json;

// Stops the driver, waits until it has stopped, and continues it. Returns false if it ended before it could stop.
bool stop_and_continue(pid_t driver) {
  kill(driver, SIGTSTP);
  siginfo_t info{};
  const int result = waitid(P_PID, static_cast<id_t>(driver), &info, WSTOPPED | WEXITED | WNOWAIT);
  kill(driver, SIGCONT);
  return result == 0 && info.si_code == CLD_STOPPED;
}

bool is_pause(const json& event) {
  return event.at("type") == "run_paused";
}

bool is_end_of_case(const json& event) {
  return event.at("type") == "case_finished";
}

TEST(Pause, AnIdlePoolIsReplaced) {
  const std::string tiny =
      R"({"suite":"adhoc","model":"m","comm":"p2p","cp_size":2,"layout":"bshd","dtype":"fp32","seqlen_q":16,)"
      R"("seqlen_kv":16,"heads":2,"kv_heads":2,"head_dim_qk":8,"head_dim_v":8})";
  DriverRun run({"submit", "--json", "-"});
  run.write_line(tiny);
  run.wait_for(is_end_of_case);
  ASSERT_TRUE(stop_and_continue(run.pid())) << run.output();
  const json paused = run.wait_for(is_pause);
  EXPECT_FALSE(paused.at("ranks_stopped").get<bool>());
  EXPECT_GT(paused.at("paused_ms").get<double>(), 0);
  run.write_line(tiny);
  run.close_stdin();
  EXPECT_EQ(run.wait(), 0) << run.output();
  const std::vector<json> events = run.events();
  EXPECT_EQ(of_type(events, "pool_spawned").size(), 2U) << run.output();
  EXPECT_EQ(of_type(events, "pool_retired").front().at("reason"), "paused");
  for (const json& finished : of_type(events, "case_finished")) {
    EXPECT_EQ(finished.at("outcome"), "pass");
    EXPECT_EQ(finished.at("attempts"), 1);
  }
}

TEST(Pause, ARunGoesOnAndEveryCasePasses) {
  constexpr int kTries = 5;
  std::vector<json> events;
  // A run may end before this process, on a busy machine, stops it.
  for (int i = 0; i < kTries && of_type(events, "run_paused").empty(); ++i) {
    DriverRun run({"run", "--matrix", "quick", "--filter", "cp_size=2 & model=causal", "--no-progress"});
    run.wait_for([](const json& e) { return e.at("type") == "case_started" && e.at("index").get<int>() >= 2; });
    stop_and_continue(run.pid());
    EXPECT_EQ(run.wait(), 0) << run.output();
    events = run.events();
  }
  EXPECT_THAT(of_type(events, "run_paused"), ::testing::SizeIs(1)) << "a run has to be stopped in its middle";
  for (const json& finished : of_type(events, "case_finished")) EXPECT_EQ(finished.at("outcome"), "pass");
  for (const json& retired : of_type(events, "pool_retired")) {
    EXPECT_THAT(retired.at("reason").get<std::string>(), ::testing::AnyOf("paused", "finished"));
  }
  EXPECT_TRUE(of_type(events, "run_finished").at(0).at("ledger_exact").get<bool>());
}

}  // namespace
}  // namespace cp_pool::test
