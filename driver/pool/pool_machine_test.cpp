// What a pool does at every event in every state, and stories of longer lives: how long it waits in each state, what it
// says, and what it asks of its worker. Both are tables of text, and a failure names the row.
#include <sstream>

#include "driver/pool/testing/machine_words.h"

namespace cp_pool::machine_test {
namespace {

// States, and below them: "event | event: what the pool does then -> the state that follows, if it is another one".
constexpr const char* kReactions = R"(
awaiting_server
  end of run | interrupt | second interrupt: emit pool_spawned, no start (interrupted) -> over
  not wanted: emit pool_spawned, no start (finished) -> over
  pause: emit pool_spawned, no start (paused) -> over
  retire | retire after a crash: SIGKILL, sweep, sweep, forget ranks, emit pool_retired, gone -> gone
  server ready: fork -> forking
  server refuses: emit pool_spawned, no start (start_failed, permanent) -> over
forking
  end of run | interrupt | not wanted | pause | second interrupt: stop forking
  fork fails: SIGKILL -> killing
  forked: emit pool_spawned -> starting
starting
  end of run | interrupt | second interrupt: no start (interrupted) -> over
  error | fail, diagnosing | garbage | pass | time: keep tails, no start (start_failed) -> over
  exit of rank 1: nothing -> start_failing
  not wanted: no start (finished) -> over
  pause: no start (paused) -> over
  ready: emit pool_ready, ready -> idle
start_failing
  all end | time: keep tails, no start (start_failed) -> over
idle
  case: send run -> running
  error | fail, diagnosing | garbage | pass: ends: protocol_break -> over
  exit of rank 1 | silence: ends: crash -> over
  not wanted: ends: finished
  pause: ends: paused -> over
  retire: send shutdown, close stdin -> shutting_down
  retire after a crash: SIGKILL -> killing
  stdin breaks | stdout closes: nothing -> pipes_closed
pipes_closed
  exit of rank 1: ends: crash -> over
  time: ends: protocol_break -> over
running
  end of run | interrupt: send cancel -> cancelling
  garbage: keep tails, crash, ends: protocol_break -> over
  pause: uncharged crash, ends: paused -> over
  second interrupt: send cancel, keep tails, cancelled, ends: interrupted -> over
  time: send ping, reopen tails, show stacks -> showing_stacks
cancelling
  garbage | second interrupt | time: keep tails, cancelled, ends: interrupted -> over
draining
  time: keep tails, crash, ends: crash -> over
fencing
  tails end | time: keep tails, error -> idle
diagnosing
  diagnosis: fail -> idle
  end of run | interrupt | second interrupt: keep tails, fail -> idle
  error | fail, diagnosing | garbage | pass: keep tails, fail, ends: protocol_break -> idle
  exit of rank 1 | stdin breaks | stdout closes: nothing -> diagnosis_draining
  pause: keep tails, fail, ends: paused -> idle
  time: emit case_progress
diagnosis_draining
  time: keep tails, fail, ends: died_after_result -> idle
showing_stacks
  all end | interrupt | second interrupt | time: keep tails, timeout, ends: timeout -> over
shutting_down
  second interrupt: SIGTERM, SIGKILL -> killing
  time: SIGTERM -> terminating
terminating
  second interrupt | time: SIGKILL -> killing
killing
  all end: sweep, sweep, forget ranks, emit pool_retired, gone -> gone
  time: forget ranks, emit pool_retired, gone -> gone
sweeping
  time: sweep, sweep, forget ranks, emit pool_retired, gone -> gone
forking starting start_failing pipes_closed running cancelling draining fencing diagnosing diagnosis_draining showing_stacks over
  retire: SIGTERM -> terminating
  retire after a crash: SIGKILL -> killing
running cancelling
  error | fail, diagnosing | refusal: nothing -> fencing
  exit of rank 1 | stdin breaks | stdout closes: nothing -> draining
  pass: pass -> idle
shutting_down terminating
  all end: SIGKILL, sweep, sweep, forget ranks, emit pool_retired, gone -> gone
running diagnosing
  question: send ping
)";

// In all other pairs of a state and an event the pool does nothing.
TEST(PoolMachine, ReactsToEachEventInEachStateAsTheTableSays) {
  std::map<std::string, std::map<std::string, std::string>> expected;
  std::istringstream lines(kReactions);
  std::string of;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  ")) {
      of = line;
      continue;
    }
    const std::size_t colon = line.find(": ");
    std::istringstream names(of);
    for (std::string name; names >> name;) {
      for (const std::string& event : split(line.substr(2, colon - 2), " | ")) {
        expected[name].emplace(event, line.substr(colon + 2));
      }
    }
  }
  for (const NamedState& state : states()) {
    for (const auto& [event, act] : events()) {
      TestedPool pool;
      lead_to(pool, state.name);
      std::string done = act(pool);
      if (name_of_state(pool) != state.name) done += " -> " + name_of_state(pool);
      const auto row = expected[state.name].extract(event);
      EXPECT_EQ(done, row ? row.mapped() : "nothing") << state.name << ": " << event;
    }
    EXPECT_THAT(expected[state.name], testing::IsEmpty()) << state.name;
  }
}

// A story begins in the state of its first word. Each line has events and what the last of them brings about, or "says"
// and a part of the reasons that were given last, or "looks again in" so many ms.
constexpr const char* kStories = R"(
starting: it has its time, and then quotes what rank 0 said instead of a message
  looks again in 30000
  chatter; 29999 ms > nothing
  1 ms > keep tails, no start (start_failed)
  says not ready within 30000 ms (--start-timeout); the last line of rank 0's stdout that is no message
  says (those begin with "[CP_POOL_RESP] "): ready!
starting: a late start cannot be helped without loopback
  no loopback; 30000 ms > keep tails, no start (start_failed, permanent)
  says ; 127.0.0.1 cannot be reached
starting: a failure in time has nothing to do with loopback
  no loopback; garbage > keep tails, no start (start_failed)
  says garbage
starting: a failure waits 200 ms for all exits, and has the last words of a rank
  exit 3 of rank 1 > nothing
  looks again in 200
  last words; exit of rank 0 > nothing
  pipes end > nothing
  all end > keep tails, no start (start_failed)
  says rank 1 died: exit 3; rank 0 died: signal 9 (SIGKILL); last words of rank 1: bad luck
starting: exits that leave no words are told with what rank 0 said instead of a message
  chatter; exit 3 of rank 1; 200 ms > keep tails, no start (start_failed)
  says rank 1 died: exit 3; the last line of rank 0's stdout that is no message
starting: rank 0 reports for all that another start cannot help
  exit 78 of rank 0; pipes end > keep tails, no start (start_failed, permanent)
starting: as there is no device
  exit 69 of rank 0; pipes end > keep tails, no start (start_failed, permanent)
starting: or no such command
  exit 127 of rank 0; pipes end > keep tails, no start (start_failed, permanent)
  says rank 0 died: exit 127 |
starting: with too few devices the cases are skipped
  exit 77 of rank 0; pipes end > keep tails, no start (start_failed, permanent, skip)
  says this machine has fewer devices than the 2 that its ranks need, one each |
starting: of which --device cpu needs none
  cuda; exit 77 of rank 0; pipes end > keep tails, no start (start_failed, permanent, skip)
  says one each (--device cpu needs none)
starting: another rank does not report for all
  exit 69 of rank 1; pipes end > nothing
  200 ms > keep tails, no start (start_failed, permanent)
starting: a worker's own reason is better than its last words
  last words; refusal; exit 3 of rank 0; all end > keep tails, no start (start_failed)
  says rank 0 died: exit 3: what?
starting: a reason that comes after the exit counts, too
  exit 3 of rank 0; refusal > nothing
  all end > keep tails, no start (start_failed)
  says rank 0 died: exit 3: what?
starting: a result before ready is an error
  pass > keep tails, no start (start_failed)
  says a result for seq 7 before the worker was ready
starting: a run that is stopped gives a start up, whoever wants the pool
  interrupt > no start (interrupted)
  says the run was stopped before it was ready
starting: a run that is paused gives a start up
  pause > no start (paused)
  says the run was paused before it was ready
starting: nobody wants it
  not wanted > no start (finished)
  says no case was left for it before it was ready
awaiting_server: it waits as long as the server itself does
  3600000 ms > nothing
  server refuses > emit pool_spawned, no start (start_failed, permanent)
  says torch is missing
awaiting_server: a server of no use is done without
  server useless > spawn, emit pool_spawned
  looks again in 30000
awaiting_server: ranks that cannot be spawned fail the start at once
  no spawn; server useless > spawn, emit pool_spawned, no start (finished)
forking: a server that is lost costs the ranks that it has forked, and all are started anew
  3600000 ms > nothing
  fork fails > SIGKILL
  all end > sweep, sweep, forget ranks, spawn, emit pool_spawned
  looks again in 30000
forking: a start that is given up is not tried anew
  not wanted > stop forking
  fork fails; all end > sweep, sweep, forget ranks, emit pool_spawned, no start (finished)
forking: a start that is given up ends when the server has answered
  interrupt > stop forking
  forked > emit pool_spawned, no start (interrupted)
idle: it waits 200 ms for an exit that explains a closed pipe
  stdin breaks; 199 ms > nothing
  1 ms > ends: stdin_broken
  says idle, rank 0 closed its stdin
idle: an exit explains a closed pipe
  stdin breaks; last words; exit of rank 0 > ends: crash
  says idle, rank 0 died: signal 9 (SIGKILL); last words of rank 0: bad luck
idle: a pool with a closed pipe gets no case
  stdout closes; case > nothing
  200 ms > ends: protocol_break
  says idle, rank 0 closed its stdout
idle: a death within 200 ms after a result is that of the case
  case; pass; 199 ms; exit of rank 1 > ends: died_after_result
idle: a later death is not
  case; pass; 200 ms; exit of rank 1 > ends: crash
idle: it is checked before it gets a case
  silence; case > nothing
  says idle, nothing has been heard of rank 1
idle: it is interrupted when nobody wants it in a run that is stopped
  interrupt; not wanted > ends: interrupted
idle: SIGKILL may be the kernel's, as memory ran out
  no memory; left; exit of rank 1 > ends: crash
  says rank 1 died: signal 9 (SIGKILL); rank 0 is still connected; meanwhile the kernel killed a process as memory ran out
idle: an exit is not
  no memory; exit 3 of rank 1 > ends: crash
  says idle, rank 1 died: exit 3 |
running: its deadline is that of the run, and the ranks then have 500 ms to show their stacks
  misplaced; progress; 1000 ms > emit case_progress
  58999 ms > nothing
  1 ms > send ping, reopen tails, show stacks
  looks again in 500
  500 ms > keep tails, timeout, ends: timeout
  says no result within 60000 ms (--timeout); the last phase was forward; a line of rank 0's stdout has the sentinel
running: how the ranks differ then belongs to the reason of the timeout
  60000 ms; pong to another; pong with a difference; 500 ms > keep tails, timeout, ends: timeout
  says no result within 60000 ms (--timeout); rank 1 has not entered all_gather #7 | no result within 60000 ms (--timeout)
idle: a case may have a deadline of its own
  case of 1500 ms; case; started; 1500 ms; 500 ms > keep tails, timeout, ends: timeout
  says no result within 1500 ms (the deadline of this case) |
idle: a case that never started says so
  case; 60000 ms; 500 ms > keep tails, timeout, ends: timeout
  says no result within 60000 ms (--timeout); the case never started
idle: a case whose request was not read says so
  case; unread; 60000 ms; 500 ms > keep tails, timeout, ends: stdin_broken
  says no result within 60000 ms (--timeout); rank 0 has not read its request
running: bytes in the pipe are those of a later request
  unread; 60000 ms; 500 ms > keep tails, timeout, ends: timeout
running: a timeout names the ranks that have been silent
  silence; 60000 ms; 500 ms > keep tails, timeout, ends: timeout
  says (--timeout); nothing has been heard of rank 1 |
running: an exit says more than silence
  silence; exit of rank 0; pipes end > keep tails, crash, ends: crash
  says rank 0 died: signal 9 (SIGKILL) | rank 0 died: signal 9 (SIGKILL) |
running: a case that had started is charged for the loss of its pool
  progress; exit of rank 0 > nothing
  pipes end > keep tails, crash, ends: crash
  says rank 0 died: signal 9 (SIGKILL) (in forward) |
idle: a case that had not started is not
  case; exit of rank 0; pipes end > keep tails, uncharged crash, ends: crash
idle: a case is not started by what is said of another
  case; started another; progress of another; exit of rank 0; pipes end > keep tails, uncharged crash, ends: crash
  says rank 0 died: signal 9 (SIGKILL) | rank 0
idle: a death right after a result, before the next case starts, is that of the earlier case
  case; started; pass; case; exit of rank 0; pipes end > keep tails, uncharged crash, ends: died_after_result
idle: a death after the next case has started is its own
  case; started; pass; case; started; exit of rank 0; pipes end > keep tails, crash, ends: crash
running: a living rank 0 has 50 ms for a result
  exit of rank 1; pipes end > nothing
  looks again in 50
  50 ms > keep tails, crash, ends: crash
running: a pipe that a grandchild holds is waited for 200 ms
  exit of rank 1; 199 ms > nothing
  1 ms > keep tails, crash, ends: crash
running: a complete result of a pool that is lost stands
  exit of rank 1; pass; pipes end > pass, ends: died_after_result
running: an error of a pool that is lost is a crash
  error; exit of rank 1; tails end > keep tails, crash, ends: died_after_result
  says rank 1 died: signal 9 (SIGKILL), after the result "error": the worker's reason
running: a fail of a pool that is lost stands
  fail; exit of rank 1; tails end > keep tails, fail, ends: died_after_result
running: rank 0 closes a pipe
  progress; stdout closes > nothing
  200 ms > keep tails, crash, ends: protocol_break
  says rank 0 closed its stdout (in forward)
running: rank 0 closes its stdin
  stdin breaks; 200 ms > keep tails, crash, ends: stdin_broken
  says rank 0 closed its stdin |
running: a worker that can cancel has the grace
  interrupt > send cancel
  looks again in 5000
starting: a worker that offers nothing has 500 ms to end a case
  ready without offers; case; interrupt > send cancel
  looks again in 500
running: no progress is reported after an interrupt
  slow after 10 s; interrupt; progress; 4999 ms > nothing
  looks again in 1
running: the worker's answer to an interrupt stands, and the worker is asked to shut down
  interrupt; cancelled > nothing
  250 ms > keep tails, cancelled
  says the run was interrupted |
  retire after an interrupt > send shutdown, close stdin
running: a worker that does not answer an interrupt gets SIGTERM
  interrupt; 5000 ms > keep tails, cancelled, ends: interrupted
  retire after an interrupt > SIGTERM
running: a worker may die of an interrupt
  interrupt; exit 3 of rank 0; pipes end > keep tails, cancelled, ends: interrupted
  says | the run was interrupted; rank 0 died: exit 3 |
running: a second interrupt ends it at once
  second interrupt > send cancel, keep tails, cancelled, ends: interrupted
running: a case that runs at the end of the run is a timeout with stacks
  run of 9 s; end of run > send cancel
  5000 ms > send ping, reopen tails, show stacks
  500 ms > keep tails, timeout, ends: timeout
  says still running at the end of the run's 9000 ms (--global-timeout)
running: an answer to the end of the run is a timeout, too
  run of 9 s; end of run; cancelled; tails end > keep tails, timeout
  says still running at the end of the run's 9000 ms
running: an error of the driver cancels without asking the worker
  error of the driver > keep tails, cancelled, ends: interrupted
running: a pause gives the case up, uncharged
  progress; pause > uncharged crash, ends: paused
  says the run was paused while a case ran (in forward)
cancelling: a pause changes nothing
  pause > nothing
running: nor does it at the end of the run
  end of run; pause; 5000 ms > send ping, reopen tails, show stacks
running: a result that has come before a pause counts
  pass; pause > ends: paused
running: a result that does not pass waits 250 ms for the end of its stderr
  error > nothing
  looks again in 250
  250 ms > keep tails, error
running: a result of another case ends the pool
  pass of another > keep tails, crash, ends: protocol_break
  says a result for seq 8, which is not outstanding
running: a second result ends the pool
  error; error; tails end > keep tails, error, ends: protocol_break
  says a result for seq 7, which is not outstanding
running: a refusal may be that of the ping
  question; refusal > nothing
  refusal of another > nothing
  refusal of case; 250 ms > keep tails, error
  says the worker refused the request: no such case
running: after the pong it is that of the case
  question; pong; refusal; 250 ms > keep tails, error
running: a question is answered with the pong to it
  question > send ping
  looks again in 1200
  pong to another > nothing
  question > nothing
  pong > emit case_progress (rank) (rank)
  question > send ping
running: or after 1200 ms, when rank 0 of a worker that reads during cases is silent
  question; 1199 ms > nothing
  1 ms > emit case_progress (silent rank)
running: progress is reported at most once a second
  progress > nothing
  looks again in 1000
idle: a question that was asked of another run is none of the case
  question; case > send run
idle: a slow case is reported
  slow after 10 s; case > send run
  looks again in 10000
  10000 ms > emit case_progress (slow)
  looks again in 10000
  question; 1200 ms > emit case_progress (silent rank)
running: a diagnosis has its time and the grace, and then the pool ends
  diagnosis of 3 s; fail, diagnosing; 250 ms > keep tails, count failure, reopen tails
  1000 ms > emit case_progress
  3999 ms > nothing
  1 ms > reopen tails, show stacks
  500 ms > keep tails, fail, ends: timeout
  says case: the diagnosis ran out of its 3 s | the diagnosis ran out of its 3 s
running: a failure that may be retried does not count yet
  retried; fail, diagnosing; 250 ms > keep tails, reopen tails
running: a diagnosis that is not announced is not awaited
  fail; 250 ms > keep tails, fail
diagnosing: an unhealthy worker is asked for no more
  unhealthy diagnosis > fail, ends: unhealthy
  says its worker asked for that after the diagnosis of case
running: a diagnosis before the result is none
  early diagnosis; fail, diagnosing; 250 ms; diagnosis > fail
  says the worker's reason |  |  |
diagnosing: a diagnosis of another case is none
  diagnosis of another > nothing
  diagnosis > fail
diagnosing: a living rank 0 has 50 ms for its diagnosis
  exit of rank 1; pipes end > nothing
  50 ms > keep tails, fail, ends: died_after_result
  says the diagnosis failed: rank 1 died: signal 9 (SIGKILL)
diagnosing: a diagnosis of a pool that is lost is taken
  exit of rank 1; diagnosis; pipes end > fail, ends: died_after_result
diagnosing: a closed pipe ends it
  stdout closes; 200 ms > keep tails, fail
  says | the diagnosis failed: rank 0 closed its stdout
diagnosing: a message that is none ends it
  garbage > keep tails, fail, ends: protocol_break
  says the diagnosis failed: garbage
diagnosing: the end of the run ends it
  interrupt > keep tails, fail
  says the run was stopped before the diagnosis had ended
diagnosing: a pause ends it
  pause > keep tails, fail, ends: paused
  says the run was paused during the diagnosis | the run was paused during the diagnosis
idle: an end is asked for, then SIGTERM, then SIGKILL, each after the grace
  retire for age > send shutdown, close stdin
  4999 ms > nothing
  1 ms > SIGTERM
  5000 ms > SIGKILL
  looks again in 5000
  5000 ms > forget ranks, emit pool_retired, gone
idle: growth is no fault that forbids to ask
  retire for growth > send shutdown, close stdin
idle: a faulty worker is not asked
  retire after a timeout > SIGTERM
idle: nothing is left to be terminated when all have ended
  retire for age; all end > SIGKILL, sweep, sweep, forget ranks, emit pool_retired, gone
idle: ranks that have lost a peer are killed
  retire after a death > SIGKILL
idle: as are those that a pause waits for
  retire for a pause > SIGKILL
idle: a launcher that is killed leaves its ranks behind
  launched; retire after a crash > SIGTERM
idle: at once means without grace
  retire at once > SIGKILL
idle: a second end changes nothing
  retire for age; retire after a crash > nothing
killing: it sweeps until two looks find no process
  process left; all end > sweep
  4 ms > nothing
  1 ms > sweep, sweep, forget ranks, emit pool_retired, gone
killing: both looks are made anew when a process is found
  process later; all end > sweep, sweep
  5 ms > sweep, sweep, forget ranks, emit pool_retired, gone
killing: it sweeps for 5 s at most
  process left; 4999 ms; all end > sweep
  5 ms > forget ranks, emit pool_retired, gone
)";

TEST(PoolMachine, LivesAsTheStoriesSay) {
  std::istringstream lines(kStories);
  std::optional<TestedPool> pool;
  std::string story;
  for (std::string line; std::getline(lines, line);) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, story + "\n" + line);
    const std::size_t reaction = line.find(" > ");
    if (line.starts_with("  says ")) {
      EXPECT_THAT(pool->reasons(), testing::HasSubstr(line.substr(7)));
    } else if (line.starts_with("  looks again in ")) {
      EXPECT_EQ(pool->to_next_look().count(), std::stoi(line.substr(17)));
    } else if (reaction != std::string::npos) {
      EXPECT_EQ(act_all(*pool, line.substr(2, reaction - 2)), line.substr(reaction + 3));
    } else if (!line.empty()) {
      story = line;
      lead_to(pool.emplace(), line.substr(0, line.find(':')));
    }
  }
}

}  // namespace
}  // namespace cp_pool::machine_test
