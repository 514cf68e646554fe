// What a pool does with every event in every state.
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "driver/pool/testing/machine_fixture.h"

namespace cp_pool::machine_test {
namespace {

using Act = std::function<std::string(TestedPool&)>;

// Sets a fact, then looks.
Act fact(const std::function<void(PoolFacts&)>& set) {
  return [set](TestedPool& pool) {
    set(pool.hands.known);
    return pool.look();
  };
}

template <typename Message>
Act message(const Message& message) {
  return [message](TestedPool& pool) { return pool.say(message); };
}

const std::map<std::string, Act>& events() {
  static const std::map<std::string, Act> all{
      {"time", [](TestedPool& pool) { return pool.after(std::min(pool.to_next_look(), milliseconds{3600'000})); }},
      {"garbage", [](TestedPool& pool) { return pool.say(Incoming{ProtocolBreak{"garbage"}}); }},
      {"ready", message(TestedPool::ready({{"options", {"diagnosis_ms"}}}))},
      {"started", message(protocol::StartedEvent{7})},
      {"pass", message(TestedPool::result(CaseOutcome::pass))},
      {"error", message(TestedPool::result(CaseOutcome::error))},
      {"fail, diagnosing", message(TestedPool::result(CaseOutcome::fail, true))},
      {"diagnosis", message(protocol::DiagnosisEvent{.seq = 7, .diagnosis = {}})},
      {"refusal", message(protocol::ProtocolErrorEvent{std::nullopt, "what?"})},
      {"exit of rank 1", [](TestedPool& pool) { return pool.end_rank(1); }},
      {"pipes end", [](TestedPool& pool) { return pool.drain(); }},
      {"all end", fact([](PoolFacts& facts) { facts.ranks.all_ended = true; })},
      {"stdin breaks", fact([](PoolFacts& facts) { facts.ranks.stdin_broken = true; })},
      {"stdout closes", fact([](PoolFacts& facts) { facts.ranks.stdout_closed = true; })},
      {"tails end", fact([](PoolFacts& facts) { facts.ranks.tails_complete = true; })},
      {"silence", fact([](PoolFacts& facts) { facts.ranks.silent = "nothing has been heard of rank 1"; })},
      {"server ready", fact([](PoolFacts& facts) { facts.server.state = ServerFacts::State::ready; })},
      {"server refuses",
       fact([](PoolFacts& facts) { facts.server = {ServerFacts::State::useless, "torch is missing", ""}; })},
      {"forked", fact([](PoolFacts& facts) { facts.ranks.forking = false; })},
      {"fork fails", fact([](PoolFacts& facts) {
         facts.ranks.forking = false;
         facts.ranks.fork_failed = true;
       })},
      {"case", [](TestedPool& pool) { return pool.run_case(); }},
      {"question", fact([](PoolFacts& facts) { ++facts.status_requests; })},
      {"not wanted", fact([](PoolFacts& facts) { facts.wanted = false; })},
      {"interrupt", fact([](PoolFacts& facts) { facts.stop.interrupted = true; })},
      {"second interrupt", fact([](PoolFacts& facts) { facts.stop.interrupted = facts.stop.kill_at_once = true; })},
      {"end of run", fact([](PoolFacts& facts) { facts.stop.global_timeout = true; })},
      {"pause", fact([](PoolFacts& facts) { facts.pausing = true; })},
      {"retire", [](TestedPool& pool) { return pool.retire(RetireReason::finished); }},
      {"retire after a crash", [](TestedPool& pool) { return pool.retire(RetireReason::crash); }},
  };
  return all;
}

// The events that lead to each state. A pool has a fork server in the states before the ranks exist.
struct Path {
  ServerFacts::State server = ServerFacts::State::none;
  std::vector<std::string> events = {};
};
const std::map<std::string, Path>& paths() {
  using enum ServerFacts::State;
  static const std::map<std::string, Path> all{
      {"awaiting_server", {starting, {}}},
      {"forking", {starting, {"server ready"}}},
      {"starting", {}},
      {"start_failing", {none, {"exit of rank 1"}}},
      {"idle", {none, {"ready"}}},
      {"pipes_closed", {none, {"ready", "stdout closes"}}},
      {"running", {none, {"ready", "case", "started"}}},
      {"cancelling", {none, {"ready", "case", "started", "interrupt"}}},
      {"draining", {none, {"ready", "case", "started", "exit of rank 1"}}},
      {"fencing", {none, {"ready", "case", "started", "error"}}},
      {"diagnosing", {none, {"ready", "case", "started", "fail, diagnosing", "tails end", "time"}}},
      {"diagnosis_draining", {none, {"ready", "case", "started", "fail, diagnosing", "tails end", "exit of rank 1"}}},
      {"showing_stacks", {none, {"ready", "case", "started", "time"}}},
      {"over", {none, {"not wanted"}}},
      {"shutting_down", {none, {"ready", "retire"}}},
      {"terminating", {none, {"not wanted", "retire"}}},
      {"killing", {none, {"retire after a crash"}}},
      {"sweeping", {none, {"retire after a crash", "all end"}}},
      {"gone", {none, {"all end", "retire"}}},
  };
  return all;
}

// What a pool in this state does at this event, and the state that follows if it is another one.
std::string reaction(const std::string& state, const std::string& event) {
  const Path& path = paths().at(state);
  TestedPool pool(path.server);
  pool.config.slow_after = milliseconds{0};
  pool.look();
  for (const std::string& before : path.events) {
    if (before == "all end" && state == "sweeping") pool.hands.processes_left = 1;
    events().at(before)(pool);
  }
  EXPECT_EQ(pool.state(), state);
  const std::string done = events().at(event)(pool);
  return pool.state() == state ? done : fmt::format("{} -> {}", done, pool.state());
}

constexpr const char* kReactions = R"(
awaiting_server
  end of run: emit pool_spawned, no start (interrupted) -> over
  interrupt: emit pool_spawned, no start (interrupted) -> over
  not wanted: emit pool_spawned, no start (finished) -> over
  pause: emit pool_spawned, no start (paused) -> over
  retire: SIGKILL, sweep, sweep, forget ranks, emit pool_retired, gone -> gone
  retire after a crash: SIGKILL, sweep, sweep, forget ranks, emit pool_retired, gone -> gone
  second interrupt: emit pool_spawned, no start (interrupted) -> over
  server ready: fork -> forking
  server refuses: emit pool_spawned, no start (start_failed, permanent) -> over
  time: give up server, emit pool_spawned, no start (start_failed, permanent) -> over
forking
  end of run: stop forking
  fork fails: SIGKILL -> killing
  forked: emit pool_spawned -> starting
  interrupt: stop forking
  not wanted: stop forking
  pause: stop forking
  retire: SIGTERM -> terminating
  retire after a crash: SIGKILL -> killing
  second interrupt: stop forking
starting
  end of run: no start (interrupted) -> over
  error: keep tails, no start (start_failed) -> over
  exit of rank 1: nothing -> start_failing
  fail, diagnosing: keep tails, no start (start_failed) -> over
  garbage: keep tails, no start (start_failed) -> over
  interrupt: no start (interrupted) -> over
  not wanted: no start (finished) -> over
  pass: keep tails, no start (start_failed) -> over
  pause: no start (paused) -> over
  ready: emit pool_ready, ready -> idle
  retire: SIGTERM -> terminating
  retire after a crash: SIGKILL -> killing
  second interrupt: no start (interrupted) -> over
  time: keep tails, no start (start_failed) -> over
start_failing
  retire: SIGTERM -> terminating
  retire after a crash: SIGKILL -> killing
  time: keep tails, no start (start_failed) -> over
idle
  case: send run -> running
  error: ends: protocol_break -> over
  exit of rank 1: ends: crash -> over
  fail, diagnosing: ends: protocol_break -> over
  garbage: ends: protocol_break -> over
  not wanted: ends: finished
  pass: ends: protocol_break -> over
  pause: ends: paused -> over
  retire: send shutdown, close stdin -> shutting_down
  retire after a crash: SIGKILL -> killing
  silence: ends: crash -> over
  stdin breaks: nothing -> pipes_closed
  stdout closes: nothing -> pipes_closed
pipes_closed
  exit of rank 1: ends: crash -> over
  retire: SIGTERM -> terminating
  retire after a crash: SIGKILL -> killing
  time: ends: protocol_break -> over
running
  end of run: send cancel -> cancelling
  error: nothing -> fencing
  exit of rank 1: nothing -> draining
  fail, diagnosing: nothing -> fencing
  garbage: keep tails, crash, ends: protocol_break -> over
  interrupt: send cancel -> cancelling
  pass: pass -> idle
  pause: uncharged crash, ends: paused -> over
  question: send ping
  refusal: nothing -> fencing
  retire: SIGTERM -> terminating
  retire after a crash: SIGKILL -> killing
  second interrupt: send cancel, keep tails, cancelled, ends: interrupted -> over
  stdin breaks: nothing -> draining
  stdout closes: nothing -> draining
  time: show stacks -> showing_stacks
cancelling
  error: nothing -> fencing
  exit of rank 1: nothing -> draining
  fail, diagnosing: nothing -> fencing
  garbage: keep tails, cancelled, ends: interrupted -> over
  pass: pass -> idle
  refusal: nothing -> fencing
  retire: SIGTERM -> terminating
  retire after a crash: SIGKILL -> killing
  second interrupt: keep tails, cancelled, ends: interrupted -> over
  stdin breaks: nothing -> draining
  stdout closes: nothing -> draining
  time: keep tails, cancelled, ends: interrupted -> over
draining
  retire: SIGTERM -> terminating
  retire after a crash: SIGKILL -> killing
  time: keep tails, crash, ends: crash -> over
fencing
  retire: SIGTERM -> terminating
  retire after a crash: SIGKILL -> killing
  tails end: keep tails, error -> idle
  time: keep tails, error -> idle
diagnosing
  diagnosis: fail -> idle
  end of run: keep tails, fail -> idle
  error: keep tails, fail, ends: protocol_break -> idle
  exit of rank 1: nothing -> diagnosis_draining
  fail, diagnosing: keep tails, fail, ends: protocol_break -> idle
  garbage: keep tails, fail, ends: protocol_break -> idle
  interrupt: keep tails, fail -> idle
  pass: keep tails, fail, ends: protocol_break -> idle
  pause: keep tails, fail, ends: paused -> idle
  question: send ping
  retire: SIGTERM -> terminating
  retire after a crash: SIGKILL -> killing
  second interrupt: keep tails, fail -> idle
  stdin breaks: nothing -> diagnosis_draining
  stdout closes: nothing -> diagnosis_draining
  time: show stacks -> showing_stacks
diagnosis_draining
  retire: SIGTERM -> terminating
  retire after a crash: SIGKILL -> killing
  time: keep tails, fail, ends: died_after_result -> idle
showing_stacks
  all end: keep tails, timeout, ends: timeout -> over
  interrupt: keep tails, timeout, ends: timeout -> over
  retire: SIGTERM -> terminating
  retire after a crash: SIGKILL -> killing
  second interrupt: keep tails, timeout, ends: timeout -> over
  time: keep tails, timeout, ends: timeout -> over
over
  retire: SIGTERM -> terminating
  retire after a crash: SIGKILL -> killing
shutting_down
  all end: SIGKILL, sweep, sweep, forget ranks, emit pool_retired, gone -> gone
  second interrupt: SIGTERM, SIGKILL -> killing
  time: SIGTERM -> terminating
terminating
  all end: SIGKILL, sweep, sweep, forget ranks, emit pool_retired, gone -> gone
  second interrupt: SIGKILL -> killing
  time: SIGKILL -> killing
killing
  all end: sweep, sweep, forget ranks, emit pool_retired, gone -> gone
  time: forget ranks, emit pool_retired, gone -> gone
sweeping
  time: sweep
gone
)";

// In all other pairs of a state and an event the pool does nothing.
std::map<std::string, std::map<std::string, std::string>> expected_reactions() {
  std::map<std::string, std::map<std::string, std::string>> out;
  std::istringstream lines(kReactions);
  std::string state;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("  ")) {
      out[state].emplace(line.substr(2, colon - 2), line.substr(colon + 2));
    } else {
      state = line;
    }
  }
  return out;
}

TEST(PoolMachine, ReactsToEachEventInEachStateAsTheTableSays) {
  auto expected = expected_reactions();
  int pairs = 0;
  for (const auto& [state, path] : paths()) {
    for (const auto& [event, act] : events()) {
      const std::string done = reaction(state, event);
      const auto row = expected[state].find(event);
      EXPECT_EQ(done, row == expected[state].end() ? "nothing" : row->second) << state << ": " << event;
      if (row != expected[state].end()) expected[state].erase(row);
      ++pairs;
    }
    EXPECT_THAT(expected[state], testing::IsEmpty()) << state;
  }
  EXPECT_GE(pairs, 500);
}

}  // namespace
}  // namespace cp_pool::machine_test
