// Pools of real ranks under faults: what `cp-pool` reports when a rank dies or throws, or when the driver ends.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/driver/harness.h"
#include "tests/real_ranks/driver_run.h"

namespace cp_pool::test {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

// The driver must see a death sooner than a pool starts, which is a time measured in the same run: the driver has to be
// notified of the death and must not poll for it. A busy machine may delay a single try, so the best of up to kTries
// tries counts.
constexpr int kTries = 10;

// The cases of the quick matrix with two ranks, which are many enough for a run to have a middle, on one pool.
const std::vector<std::string> kTwoRankRun = {"run",          "--matrix", "quick", "--filter",
                                              "world_size=2", "--slots",  "2",     "--no-progress"};

constexpr const char* kTinyCase =
    R"({"suite":"adhoc","model":"m","comm":"p2p","cp_size":2,"layout":"bshd","dtype":"fp32","seqlen_q":16,)"
    R"("seqlen_kv":16,"heads":2,"kv_heads":2,"head_dim_qk":8,"head_dim_v":8})";

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

// Expects that every expanded case ended exactly once.
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
  std::size_t pools = 0;
  // A run may end before this process, on a busy machine, kills the rank.
  for (int i = 0; i < kTries && pools < 2; ++i) {
    DriverRun run(kTwoRankRun);
    const auto spawned = run.wait_for([](const json& e) { return is(e, "pool_spawned"); });
    run.wait_for([](const json& e) { return is(e, "case_started") && e.at("index").get<int>() >= 3; });
    kill(spawned.at("pids").at(GetParam()).get<pid_t>(), SIGKILL);
    const int code = run.wait();

    const auto events = run.events();
    auto counts = outcome_counts(events);
    EXPECT_LE(counts["crash"], 1) << run.output();
    EXPECT_EQ(counts["crash"] + counts["pass"], static_cast<int>(of_type(events, "case_finished").size()))
        << run.output();
    EXPECT_EQ(code, counts["crash"] > 0 ? 100 : 0);
    pools = of_type(events, "pool_ready").size();
    expect_exact_ledger(events);
    expect_no_rank_left(events);
  }
  EXPECT_GE(pools, 2U) << "the pool must come back";
}

INSTANTIATE_TEST_SUITE_P(PoolRecovery, KilledRank, ::testing::Values(0, 1));

std::chrono::duration<double, std::milli> start_time(const json& pool_ready) {
  return std::chrono::duration<double, std::milli>(pool_ready.at("spawn_to_ready_ms").get<double>());
}

class IdleRank : public ::testing::TestWithParam<int> {};

TEST_P(IdleRank, DeathIsSeenSoonerThanAPoolStartsAndTheNextCasePasses) {
  DriverRun run({"submit", "--json", "-"});
  bool seen_soon = false;
  int deaths = 0;
  for (; deaths < kTries && !seen_soon; ++deaths) {
    run.write_line(kTinyCase);
    const auto of_pool = [deaths](const json& e) { return e.at("pool").at("generation") == deaths + 1; };
    const auto spawned = run.wait_for([&](const json& e) { return is(e, "pool_spawned") && of_pool(e); });
    const auto ready = run.wait_for([&](const json& e) { return is(e, "pool_ready") && of_pool(e); });
    run.wait_for([&](const json& e) { return is(e, "case_finished") && of_pool(e); });
    const auto killed = std::chrono::steady_clock::now();
    kill(spawned.at("pids").at(GetParam()).get<pid_t>(), SIGKILL);
    run.wait_for([&](const json& e) { return is(e, "pool_retired") && of_pool(e); });
    seen_soon = std::chrono::steady_clock::now() - killed < start_time(ready);
  }
  EXPECT_TRUE(seen_soon);

  run.write_line(kTinyCase);
  run.close_stdin();
  EXPECT_EQ(run.wait(), 0) << run.output();
  const auto events = run.events();
  EXPECT_EQ(outcome_counts(events)["pass"], deaths + 1);
  expect_no_rank_left(events);
}

INSTANTIATE_TEST_SUITE_P(PoolRecovery, IdleRank, ::testing::Values(0, 1));

using SystemClock = std::chrono::system_clock;

SystemClock::time_point time_of(const json& event) {
  std::tm parts{};
  int milliseconds = 0;
  const std::string text = event.at("ts");  // 2026-01-31T12:00:00.123Z
  const char* const rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr || std::sscanf(rest, ".%3dZ", &milliseconds) != 1)
    throw std::runtime_error("not a time: " + text);
  return SystemClock::from_time_t(timegm(&parts)) + std::chrono::milliseconds(milliseconds);
}

// Kills a rank that waits for the other rank, which computes for ever. Returns whether the driver reports the case in
// less time than the start of its pool took.
bool busy_rank_is_seen_dead_soon(int rank) {
  const driver_test::TemporaryPath folder("busy-rank");
  const std::string worker = fmt::format("'{}' --inject spin@{}:inside", CP_POOL_WORKER_BINARY, 1 - rank);
  DriverRun run({"submit", "--json", "-", "--run-dir", folder.get(), "--worker", worker});
  run.write_line(kTinyCase);
  const auto spawned = run.wait_for([](const json& e) { return is(e, "pool_spawned"); });
  const auto ready = run.wait_for([](const json& e) { return is(e, "pool_ready"); });
  const auto log = folder.get() / "pools" / "cpu-2-gen1" / "rank0.stdout.log";
  for (const char* text : {R"("event":"started")", R"("phase":"forward")"}) {
    while (!has_text(log, text)) std::this_thread::yield();
  }
  const auto killed = SystemClock::now();
  kill(spawned.at("pids").at(rank).get<pid_t>(), SIGKILL);
  const auto finished = run.wait_for([](const json& e) { return is(e, "case_finished"); });
  EXPECT_EQ(finished.at("outcome"), "crash");
  EXPECT_THAT(finished.at("reason").get<std::string>(),
              ::testing::HasSubstr(fmt::format("rank {} died: signal 9 (SIGKILL)", rank)));
  run.close_stdin();
  run.wait();
  expect_no_rank_left(run.events());
  return time_of(finished) - killed < start_time(ready);
}

class BusyRank : public ::testing::TestWithParam<int> {};

TEST_P(BusyRank, DeathIsSeenSoonerThanAPoolStarts) {
  bool seen_soon = false;
  for (int i = 0; i < kTries && !seen_soon; ++i) seen_soon = busy_rank_is_seen_dead_soon(GetParam());
  EXPECT_TRUE(seen_soon);
}

INSTANTIATE_TEST_SUITE_P(PoolRecovery, BusyRank, ::testing::Values(0, 1));

TEST(Interrupt, EndsACaseOfRanksThatSitInACollectiveAndKeepsWhatTheySaid) {
  DriverRun run(kTwoRankRun + std::vector<std::string>{"--grace", "60s", "--worker",
                                                       "'" CP_POOL_WORKER_BINARY "' --inject hang@1:inside"});
  run.wait_for([](const json& e) { return is(e, "case_started"); });
  const auto interrupted = std::chrono::steady_clock::now();
  kill(run.pid(), SIGINT);
  EXPECT_EQ(run.wait(), 130) << run.output();
  EXPECT_LT(std::chrono::steady_clock::now() - interrupted, 60s) << "less than the grace: the worker answered";
  const auto events = run.events();
  // Cases that had not started may be reported before the running one.
  const auto finished = of_type(events, "case_finished");
  const auto running = std::ranges::find_if(finished, [](const json& e) { return e.at("outcome") == "cancelled"; });
  ASSERT_NE(running, finished.end());
  EXPECT_EQ(running->at("id"), of_type(events, "case_started").at(0).at("id"));
  EXPECT_THAT(running->at("ranks"), ::testing::Not(::testing::IsEmpty()));
  EXPECT_GT(outcome_counts(events)["not-run"], 0);
  expect_exact_ledger(events);
  expect_no_rank_left(events);
}

class KilledDriver : public ::testing::TestWithParam<const char*> {};

TEST_P(KilledDriver, LeavesNoRankBehindAndItsEventsReadable) {
  DriverRun run(kTwoRankRun);
  run.wait_for([](const json& e) { return is(e, GetParam()); });
  kill(run.pid(), SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  EXPECT_EQ(run.wait(), -SIGKILL);
  const auto events = run.events();  // parses every line
  ASSERT_FALSE(events.empty());
  for (const auto& spawned : of_type(events, "pool_spawned")) {
    for (const auto& pid : spawned.at("pids")) {
      while (process_runs(pid.get<pid_t>()) && std::chrono::steady_clock::now() - killed < 20s)
        std::this_thread::yield();
      EXPECT_FALSE(process_runs(pid.get<pid_t>())) << "rank " << pid << " outlives the driver";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(At, KilledDriver,
                         ::testing::Values("pool_spawned", "pool_ready", "case_started", "case_finished"),
                         [](const auto& info) { return std::string(info.param); });

TEST(PoolRecovery, ARankThatThrowsInsideACollectiveReachesTheReportWithItsOwnError) {
  const std::string worker = "'" CP_POOL_WORKER_BINARY "' --inject throw@1:inside:*/p2p/*";
  DriverRun run(kTwoRankRun + std::vector<std::string>{"--worker", worker});
  EXPECT_EQ(run.wait(), 100) << run.output();
  const auto events = run.events();
  int errors = 0;
  const double start_ms = of_type(events, "pool_ready").at(0).at("spawn_to_ready_ms");
  for (const auto& finished : of_type(events, "case_finished")) {
    const bool p2p = finished.at("id").get<std::string>().find("/p2p/") != std::string::npos;
    EXPECT_EQ(finished.at("outcome"), p2p ? "error" : "pass") << finished.dump(1);
    if (!p2p) continue;
    ++errors;
    // On a quiet machine abort, stack trace and new connections take less time than the start of the pool.
    EXPECT_LT(finished.at("duration_ms").get<double>(), 10 * start_ms) << finished.at("id");
    EXPECT_THAT(finished.dump(), ::testing::HasSubstr("inject")) << "the rank's own error must be in the report";
  }
  EXPECT_GT(errors, 0);
  expect_exact_ledger(events);
  expect_no_rank_left(events);
}

// Runs the quick matrix in this order. Returns for each case ID the hashes of every rank's outputs and gradients.
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
}  // namespace cp_pool::test
