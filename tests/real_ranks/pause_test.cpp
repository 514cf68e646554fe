// A run with real ranks that is stopped and continued, as Ctrl-Z and fg do.
#include <csignal>
#include <string>
#include <sys/wait.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/real_ranks/driver_run.h"

namespace cp_pool::test {
namespace {

using nlohmann::json;

// Stops the driver, waits until it has stopped, and continues it.
void stop_and_continue(pid_t driver) {
  kill(driver, SIGTSTP);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(driver), &info, WSTOPPED), 0);
  kill(driver, SIGCONT);
}

bool is_pause(const json& event) {
  return event.at("type") == "run_paused";
}

bool is_end_of_case(const json& event) {
  return event.at("type") == "case_finished";
}

TEST(Pause, AnIdlePoolIsPingedAndKept) {
  const std::string tiny =
      R"({"suite":"adhoc","model":"m","comm":"p2p","cp_size":2,"layout":"bshd","dtype":"fp32","seqlen_q":16,)"
      R"("seqlen_kv":16,"heads":2,"kv_heads":2,"head_dim_qk":8,"head_dim_v":8})";
  DriverRun run({"submit", "--json", "-"});
  run.write_line(tiny);
  run.wait_for(is_end_of_case);
  stop_and_continue(run.pid());
  const json paused = run.wait_for(is_pause);
  EXPECT_TRUE(paused.at("ranks_stopped").get<bool>());
  EXPECT_GT(paused.at("paused_ms").get<double>(), 0);
  run.write_line(tiny);
  run.close_stdin();
  EXPECT_EQ(run.wait(), 0) << run.output();
  const std::vector<json> events = run.events();
  EXPECT_EQ(of_type(events, "pool_spawned").size(), 1U) << run.output();
  for (const json& finished : of_type(events, "case_finished")) {
    EXPECT_EQ(finished.at("outcome"), "pass");
    EXPECT_EQ(finished.at("attempts"), 1);
  }
}

TEST(Pause, ARunGoesOnAndEveryCasePasses) {
  DriverRun run({"run", "--matrix", "quick", "--filter", "cp_size=2 & model=causal", "--no-progress"});
  run.wait_for([](const json& e) { return e.at("type") == "case_started" && e.at("index").get<int>() >= 2; });
  stop_and_continue(run.pid());
  run.wait_for(is_pause);
  EXPECT_EQ(run.wait(), 0) << run.output();
  const std::vector<json> events = run.events();
  for (const json& finished : of_type(events, "case_finished")) EXPECT_EQ(finished.at("outcome"), "pass");
  for (const json& retired : of_type(events, "pool_retired")) {
    EXPECT_THAT(retired.at("reason").get<std::string>(), ::testing::AnyOf("paused", "finished"));
  }
  EXPECT_TRUE(of_type(events, "run_finished").at(0).at("ledger_exact").get<bool>());
}

}  // namespace
}  // namespace cp_pool::test
