// The pool of real ranks under faults: what the user of `cp-pool run` sees when a rank dies or throws.
#include <chrono>
#include <csignal>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/real_ranks/driver_run.h"

namespace cp_pool::testing {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

// Two-rank cases of the quick matrix: enough of them that a run has a middle.
const std::vector<std::string> kTwoRankRun = {"run", "--matrix", "quick", "--filter", "cp_size=2", "--no-progress"};

std::vector<std::string> operator+(std::vector<std::string> left, const std::vector<std::string>& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

bool is(const json& event, const std::string& type) {
  return event.at("type") == type;
}

std::map<std::string, int> outcome_counts(const std::vector<json>& events) {
  std::map<std::string, int> counts;
  for (const auto& finished : of_type(events, "case_finished")) ++counts[finished.at("outcome")];
  return counts;
}

// Every expanded case ended exactly once.
void expect_exact_ledger(const std::vector<json>& events) {
  std::multiset<std::string> ids;
  for (const auto& finished : of_type(events, "case_finished")) ids.insert(finished.at("id"));
  EXPECT_EQ(ids.size(), of_type(events, "run_started").at(0).at("cases").get<std::size_t>());
  for (const auto& id : ids) EXPECT_EQ(ids.count(id), 1U) << id;
  EXPECT_TRUE(of_type(events, "run_finished").at(0).at("ledger_exact").get<bool>());
}

void expect_no_rank_left(const std::vector<json>& events) {
  for (const auto& spawned : of_type(events, "pool_spawned")) {
    for (const auto& pid : spawned.at("pids")) EXPECT_FALSE(process_exists(pid.get<pid_t>())) << spawned;
  }
}

class KilledRank : public ::testing::TestWithParam<int> {};

TEST_P(KilledRank, InTheMiddleOfARunCostsAtMostTheRunningCase) {
  DriverRun run(kTwoRankRun);
  const auto spawned = run.wait_for([](const json& e) { return is(e, "pool_spawned"); });
  const auto at = run.wait_for([](const json& e) { return is(e, "case_started") && e.at("index").get<int>() >= 3; });
  kill(spawned.at("pids").at(GetParam()).get<pid_t>(), SIGKILL);
  const int code = run.wait();

  const auto events = run.events();
  auto counts = outcome_counts(events);
  EXPECT_LE(counts["crash"], 1) << run.output();
  EXPECT_EQ(counts["crash"] + counts["pass"], static_cast<int>(of_type(events, "case_finished").size()))
      << run.output();
  EXPECT_EQ(code, counts["crash"] > 0 ? 100 : 0);
  EXPECT_GE(of_type(events, "pool_ready").size(), 2U) << "the pool must come back";
  expect_exact_ledger(events);
  expect_no_rank_left(events);
}

INSTANTIATE_TEST_SUITE_P(PoolRecovery, KilledRank, ::testing::Values(0, 1));

class IdleRank : public ::testing::TestWithParam<int> {};

TEST_P(IdleRank, DeathIsSeenWithinATenthOfASecondAndTheNextCasePasses) {
  DriverRun run({"submit", "--json", "-"});
  const std::string line =
      R"({"suite":"adhoc","model":"m","comm":"p2p","cp_size":2,"layout":"bshd","dtype":"fp32","seqlen_q":16,)"
      R"("seqlen_kv":16,"heads":2,"kv_heads":2,"head_dim_qk":8,"head_dim_v":8})";
  run.write_line(line);
  const auto spawned = run.wait_for([](const json& e) { return is(e, "pool_spawned"); });
  run.wait_for([](const json& e) { return is(e, "case_finished"); });

  const auto killed = std::chrono::steady_clock::now();
  kill(spawned.at("pids").at(GetParam()).get<pid_t>(), SIGKILL);
  run.wait_for([](const json& e) { return is(e, "pool_retired"); });
  EXPECT_LT(std::chrono::steady_clock::now() - killed, 100ms);

  run.write_line(line);
  run.close_stdin();
  EXPECT_EQ(run.wait(), 0) << run.output();
  const auto events = run.events();
  EXPECT_EQ(outcome_counts(events)["pass"], 2);
  expect_no_rank_left(events);
}

INSTANTIATE_TEST_SUITE_P(PoolRecovery, IdleRank, ::testing::Values(0, 1));

TEST(PoolRecovery, ARankThatThrowsInsideACollectiveReachesTheReportWithItsOwnError) {
  const std::string worker = std::string(CP_POOL_WORKER_BINARY) + " --inject throw@1:inside:*/p2p/*";
  DriverRun run(kTwoRankRun + std::vector<std::string>{"--worker", worker});
  EXPECT_EQ(run.wait(), 100) << run.output();
  const auto events = run.events();
  int errors = 0;
  for (const auto& finished : of_type(events, "case_finished")) {
    const bool p2p = finished.at("id").get<std::string>().find("/p2p/") != std::string::npos;
    EXPECT_EQ(finished.at("outcome"), p2p ? "error" : "pass") << finished.dump(1);
    if (!p2p) continue;
    ++errors;
    EXPECT_LT(finished.at("duration_ms").get<double>(), 2000.0) << finished.at("id");
    EXPECT_THAT(finished.dump(), ::testing::HasSubstr("inject")) << "the rank's own error must be in the report";
  }
  EXPECT_GT(errors, 0);
  expect_exact_ledger(events);
  expect_no_rank_left(events);
}

// ID -> hashes of every rank's outputs and gradients.
std::map<std::string, std::string> hashes_of_quick(const std::string& order) {
  DriverRun run({"run", "--matrix", "quick", "--no-progress", "--order", order});
  EXPECT_EQ(run.wait(), 0) << run.output();
  std::map<std::string, std::string> hashes;
  for (const auto& finished : of_type(run.events(), "case_finished")) {
    auto& text = hashes[finished.at("id")];
    for (const auto& rank : finished.at("ranks")) {
      text += rank.at("output_hash").get<std::string>() + " ";
      EXPECT_FALSE(rank.at("output_hash").get<std::string>().empty()) << finished.at("id");
    }
  }
  return hashes;
}

TEST(OrderIndependence, QuickForwardReversedAndShuffledGivesTheSameBits) {
  const auto listed = hashes_of_quick("listed");
  EXPECT_GT(listed.size(), 20U);
  EXPECT_EQ(hashes_of_quick("reverse"), listed);
  EXPECT_EQ(hashes_of_quick("shuffle:7"), listed);
}

}  // namespace
}  // namespace cp_pool::testing
