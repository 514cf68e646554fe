// Words for what happens to a tested pool, and for the states that it can be in: tables of text name them.
#pragma once

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "driver/pool/testing/machine_fixture.h"

namespace cp_pool::machine_test {

using Act = std::function<std::string(TestedPool&)>;

// Sets a fact, then looks.
inline Act fact(const std::function<void(PoolFacts&)>& set) {
  return [set](TestedPool& pool) {
    set(pool.hands.known);
    return pool.look();
  };
}

inline Act message(protocol::Event event) {
  return [event = std::move(event)](TestedPool& pool) { return pool.say(event); };
}

// Sets what the machine has not looked at yet.
inline Act given(const std::function<void(TestedPool&)>& set) {
  return [set](TestedPool& pool) {
    set(pool);
    return "";
  };
}

// Everything that can happen to a pool. The table has each of them in each state.
inline const std::map<std::string, Act>& events() {
  using enum ServerFacts::State;
  static const std::map<std::string, Act> all{
      {"time", [](TestedPool& pool) { return pool.after(std::min(pool.to_next_look(), milliseconds{3600'000})); }},
      {"garbage", [](TestedPool& pool) { return pool.say(ProtocolBreak{"garbage"}); }},
      {"ready", message(TestedPool::ready())},
      {"started", message(protocol::StartedEvent{7})},
      {"pass", message(TestedPool::result(CaseOutcome::pass))},
      {"error", message(TestedPool::result(CaseOutcome::error))},
      {"fail, diagnosing", message(TestedPool::result(CaseOutcome::fail, true))},
      {"diagnosis", message(protocol::DiagnosisEvent{.seq = 7})},
      {"refusal", message(protocol::ProtocolErrorEvent{std::nullopt, "what?"})},
      {"exit of rank 1", [](TestedPool& pool) { return pool.end_rank(1); }},
      {"pipes end", fact([](PoolFacts& facts) { facts.ranks.drained = true; })},
      {"all end", fact([](PoolFacts& facts) { facts.ranks.drained = facts.ranks.all_ended = true; })},
      {"stdin breaks", fact([](PoolFacts& facts) { facts.ranks.stdin_broken = true; })},
      {"stdout closes", fact([](PoolFacts& facts) { facts.ranks.stdout_closed = true; })},
      {"tails end", fact([](PoolFacts& facts) { facts.ranks.tails_complete = true; })},
      {"silence", fact([](PoolFacts& facts) { facts.ranks.silent = "nothing has been heard of rank 1"; })},
      {"server ready", fact([](PoolFacts& facts) { facts.server.state = ready; })},
      {"server refuses", fact([](PoolFacts& facts) { facts.server = {useless, "torch is missing", "Traceback"}; })},
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

// What only stories mention: other forms of these events, and what is so beforehand.
inline const std::map<std::string, Act>& more_events() {
  using enum ServerFacts::State;
  static const std::map<std::string, Act> all{
      {"server starts", fact([](PoolFacts& facts) { facts.server.state = starting; })},
      {"server useless", fact([](PoolFacts& facts) { facts.server.state = useless; })},
      {"ready without offers", message(TestedPool::ready({}))},
      {"started another", message(protocol::StartedEvent{8})},
      {"progress", message(protocol::ProgressEvent{7, "forward"})},
      {"progress of another", message(protocol::ProgressEvent{8, "backward"})},
      {"pass of another", message(TestedPool::result(CaseOutcome::pass, false, 8))},
      {"fail", message(TestedPool::result(CaseOutcome::fail))},
      {"cancelled", message(TestedPool::result(CaseOutcome::cancelled))},
      {"early diagnosis", message([] {
         protocol::DiagnosisEvent out{.seq = 7};
         out.diagnosis.cause = "early";
         return out;
       }())},
      {"diagnosis of another", message(protocol::DiagnosisEvent{.seq = 6})},
      {"unhealthy diagnosis", message(protocol::DiagnosisEvent{.seq = 7, .healthy = false})},
      {"refusal of case", message(protocol::ProtocolErrorEvent{7, "no such case"})},
      {"refusal of another", message(protocol::ProtocolErrorEvent{8, "no preparation"})},
      {"pong", message(protocol::PongEvent{.seq = 101, .ranks = {0, 1}})},
      {"pong to another", message(protocol::PongEvent{.seq = 99, .ranks = {0, 1}})},
      {"pong with a difference",
       message(protocol::PongEvent{.seq = 101, .ranks = {0, 1}, .difference = "rank 1 has not entered all_gather #7"})},
      {"exit of rank 0", [](TestedPool& pool) { return pool.end_rank(0); }},
      {"error of the driver", fact([](PoolFacts& facts) { facts.stop.internal_error = true; })},
      {"retire for age", [](TestedPool& pool) { return pool.retire(RetireReason::max_cases); }},
      {"retire for growth", [](TestedPool& pool) { return pool.retire(RetireReason::hygiene); }},
      {"retire after an interrupt", [](TestedPool& pool) { return pool.retire(RetireReason::interrupted); }},
      {"retire after a timeout", [](TestedPool& pool) { return pool.retire(RetireReason::timeout); }},
      {"retire after a death", [](TestedPool& pool) { return pool.retire(RetireReason::died_after_result); }},
      {"retire for a pause", [](TestedPool& pool) { return pool.retire(RetireReason::paused); }},
      {"retire at once", [](TestedPool& pool) { return pool.retire(RetireReason::timeout, true); }},
      {"chatter", given([](TestedPool& pool) { pool.hands.known.ranks.last_chatter = "ready!"; })},
      {"misplaced", given([](TestedPool& pool) { pool.hands.known.ranks.misplaced_sentinel = "x [CP_POOL] {"; })},
      {"last words", given([](TestedPool& pool) { pool.hands.last_line = "bad luck"; })},
      {"left", given([](TestedPool& pool) { pool.hands.known.ranks.left = "rank 0 is still connected"; })},
      {"no loopback", given([](TestedPool& pool) { pool.hands.loopback = "127.0.0.1 cannot be reached"; })},
      {"no memory", given([](TestedPool& pool) { pool.hands.no_memory = true; })},
      {"unread", given([](TestedPool& pool) { pool.hands.known.ranks.stdin_pending = true; })},
      {"launched", given([](TestedPool& pool) { pool.hands.known.ranks.die_with_their_processes = false; })},
      {"process left", given([](TestedPool& pool) { pool.hands.processes_left = {1}; })},
      {"process later", given([](TestedPool& pool) { pool.hands.processes_left = {0, 1}; })},
      {"no spawn", given([](TestedPool& pool) { pool.hands.spawn_failure.emplace(); })},
      {"cuda", given([](TestedPool& pool) { pool.config.device = "cuda"; })},
      {"slow after 10 s", given([](TestedPool& pool) { pool.config.slow_after = milliseconds{10000}; })},
      {"diagnosis of 3 s", given([](TestedPool& pool) { pool.config.diagnosis_time = milliseconds{3000}; })},
      {"case of 1500 ms", given([](TestedPool& pool) { pool.named.timeout = milliseconds{1500}; })},
      {"run of 9 s", given([](TestedPool& pool) { pool.config.global_timeout = milliseconds{9000}; })},
      {"retried", given([](TestedPool& pool) {
         pool.named.retries = 1;
         pool.config.retries.on.insert(CaseOutcome::fail);
       })},
  };
  return all;
}

// An event of the maps above, "250 ms", which pass, or "exit 3 of rank 0".
inline std::string act(TestedPool& pool, const std::string& event) {
  if (std::isdigit(event.front()) != 0) return pool.after(milliseconds{std::stoi(event)});
  if (event.starts_with("exit ") && std::isdigit(event[5]) != 0) {
    return pool.end_rank(event.back() - '0', {.signaled = false, .code = std::stoi(event.substr(5))});
  }
  return (events().contains(event) ? events() : more_events()).at(event)(pool);
}

inline std::vector<std::string> split(std::string_view text, std::string_view between) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(between), text.size());
    out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + between.size(), text.size()));
  }
  return out;
}

// Events that are divided by "; ". Returns what the last one has brought about.
inline std::string act_all(TestedPool& pool, std::string_view events) {
  std::string out;
  for (const std::string& event : split(events, "; ")) out = act(pool, event);
  return out;
}

// The states after the first look, each with the events that lead to it.
struct NamedState {
  PoolMachine::State state;
  const char* name;
  const char* path;
};
inline const std::vector<NamedState>& states() {
  using enum PoolMachine::State;
  static const std::vector<NamedState> all{
      {awaiting_server, "awaiting_server", "server starts"},
      {forking, "forking", "server starts; server ready"},
      {starting, "starting", ""},
      {start_failing, "start_failing", "exit of rank 1"},
      {idle, "idle", "ready"},
      {pipes_closed, "pipes_closed", "ready; stdout closes"},
      {running, "running", "ready; case; started"},
      {cancelling, "cancelling", "ready; case; started; interrupt"},
      {draining, "draining", "ready; case; started; exit of rank 1"},
      {fencing, "fencing", "ready; case; started; error"},
      {diagnosing, "diagnosing", "ready; case; started; fail, diagnosing; tails end"},
      {diagnosis_draining, "diagnosis_draining", "ready; case; started; fail, diagnosing; tails end; exit of rank 1"},
      {showing_stacks, "showing_stacks", "ready; case; started; 60000 ms"},
      {over, "over", "not wanted"},
      {shutting_down, "shutting_down", "ready; retire"},
      {terminating, "terminating", "not wanted; retire"},
      {killing, "killing", "retire after a crash"},
      {sweeping, "sweeping", "retire after a crash; process left; all end"},
      {gone, "gone", "retire after a crash; all end"},
  };
  return all;
}

inline std::string name_of_state(const TestedPool& pool) {
  return std::ranges::find(states(), pool.machine.state(), &NamedState::state)->name;
}

// Brings a new pool into the state of that name.
inline void lead_to(TestedPool& pool, std::string_view state) {
  const auto found = std::ranges::find(states(), state, &NamedState::name);
  ASSERT_NE(found, states().end()) << state;
  if (!std::string_view(found->path).starts_with("server")) pool.look();
  act_all(pool, found->path);
  ASSERT_EQ(name_of_state(pool), state);
}

}  // namespace cp_pool::machine_test
