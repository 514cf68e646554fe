// Everything that happens in a run, in one ordered stream. The JSONL file is this stream; terminal, JUnit and summary
// are views of it: none of them sees anything else.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cases/case.h"
#include "driver/perf_figures.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// What became of a case. Every expanded case ends in exactly one of these.
enum class CaseOutcome { pass, fail, skip, error, timeout, crash, infra, cancelled, not_run };
inline constexpr std::size_t kCaseOutcomes = 9;
std::string_view to_string(CaseOutcome outcome);  // "not-run" for not_run
bool is_failure(CaseOutcome outcome);             // fail, error, timeout, crash

// Which pool: one per world size and device.
struct PoolId {
  std::string key;     // "cpu/2": device and world size
  int generation = 0;  // counts the pools started under this key, from 1
};

struct RunStarted {
  std::string title;  // of the matrices
  std::string size;   // full | small
  std::string device;
  int shared_gpus = 0;    // this machine's GPUs, if ranks of some cases will share them; else 0
  std::size_t cases = 0;  // expanded and selected: what the ledger must add up to
  std::string version;
  std::vector<std::string> ids;                   // of the cases, each once; empty for a stream
  std::chrono::system_clock::time_point started;  // set by the run itself
};

struct PoolSpawned {
  PoolId pool;
  int world_size = 0;
  std::vector<int> pids;  // by rank
};

struct PoolReady {
  PoolId pool;
  double spawn_to_ready_ms = 0;
  protocol::ReadyEvent ready;
};

// Why a pool was given up.
enum class RetireReason {
  finished,           // nothing left for it to do
  start_failed,       // never ready: exit, timeout or a bad first line
  timeout,            // a case ran into the driver's deadline
  crash,              // died during a case, or idle
  died_after_result,  // died after its result was in
  unhealthy,          // a result with healthy:false
  protocol_break,     // a sentinel line that is not a valid message
  stdin_broken,       // its stdin pipe broke or stayed full
  max_cases,          // --pool-max-cases
  hygiene,            // its memory, descriptors or threads grew past a limit
  paused,             // its ranks were stopped (Ctrl-Z) while they started or ran a case, or do not answer since
  interrupted,        // Ctrl-C
};
std::string_view to_string(RetireReason reason);

struct RankExit {
  int rank = 0;
  int pid = 0;
  std::string status;  // "exit 3", "signal 11 (SIGSEGV)", "signal 9 (SIGKILL), by the driver"
};

struct Leftover {  // a process that could not be killed
  int pid = 0;
  std::string state;  // /proc/PID/stat
  std::string wchan;
};

struct PoolRetired {
  PoolId pool;
  RetireReason reason = RetireReason::finished;
  std::string detail;  // one sentence
  int cases = 0;       // it ran
  std::vector<RankExit> exits;
  std::vector<Leftover> leftovers;
};

struct CaseStarted {
  std::size_t index = 0;  // in the expanded list
  std::string id;
  std::int64_t seq = 0;
  PoolId pool;
  int attempt = 1;
  std::size_t number = 0;                // as in CaseFinished
  std::optional<Case> c = std::nullopt;  // of a stream, whose cases are nowhere else if the driver dies
};

// A case that goes on: its phase is another one than was last told (at most one such event a second), or it is slow.
struct CaseProgress {
  std::size_t index = 0;
  std::string id;
  std::int64_t seq = 0;
  PoolId pool;
  std::string phase;      // that its worker reported last; empty: none
  double running_ms = 0;  // since it was sent
  double timeout_ms = 0;  // how long it may run
  bool slow = false;      // it has been running for --slow-after, or for twice, four times, .. as long
};

// The run is being stopped: running cases are cancelled, and pools end. It waits for the cases and pools that earlier
// events have started.
struct RunStopping {
  enum class Reason {
    interrupted,     // Ctrl-C, SIGTERM or SIGHUP
    killed,          // a second one: no grace for anybody
    global_timeout,  // --global-timeout
  };
  Reason reason = Reason::interrupted;
  double limit_ms = 0;  // after which whatever still runs will have been killed
};
std::string_view to_string(RunStopping::Reason reason);

struct StderrTail {
  int rank = 0;
  std::string text;    // the last 4 KiB of this case, cleaned
  bool fenced = true;  // false: the fence was missing, so lines of this case may be missing or foreign
};

// What came of a case the first time.
struct FirstRun {
  CaseOutcome outcome = CaseOutcome::not_run;
  std::string reason;
};

struct CaseFinished {
  std::size_t index = 0;
  std::string id;
  std::size_t number = 0;  // the line of the stream that it is; 0: it is of none
  int run = 1;             // of `runs` of this case in one run (--repeat): which it is
  int runs = 1;
  // Of a case that an earlier run had run, too, in the report of both. No event has it.
  std::optional<FirstRun> first_run;
  Case c;
  std::int64_t seq = 0;        // 0 if it was never sent
  std::optional<PoolId> pool;  // none if it was never sent
  int attempts = 0;
  CaseOutcome outcome = CaseOutcome::not_run;
  std::string reason;      // empty for a pass
  double duration_ms = 0;  // line sent to outcome known
  std::vector<protocol::RankResult> ranks;
  std::vector<protocol::TensorCheck> checks;
  std::map<std::string, double> timings_ms;
  std::vector<protocol::Hygiene> hygiene;
  std::string backend;
  int shared_gpus = 0;       // how many GPUs the ranks of its pool shared; 0: each rank had a device of its own
  std::string backend_note;  // what of the case another backend computed, and why; mostly empty
  // In a run that runs cases several times: of another run of a case, the ranks whose outputs have other bits than in
  // the first. None: it is the first, did not pass, or nothing is known.
  std::optional<std::vector<int>> other_bits;
  std::optional<PerfFigures> perf;       // of a pass in a run that takes times, and of a fail for its time
  std::vector<StderrTail> stderr_tails;  // of outcomes other than pass and skip
  std::string rerun;                     // the exact command that reruns this case alone
};

// The driver was stopped for a while (Ctrl-Z), and goes on. No time of the run has this time in it.
struct RunPaused {
  double paused_ms = 0;
  bool ranks_stopped = false;  // with it; false: SIGSTOP and the like, which the driver cannot catch
};

// An output of the run that its pools write cannot be written. The run goes on; once for each output.
struct OutputLost {
  std::string output;   // the option: "--run-dir"
  std::string message;  // one line that names the file and the cause
};

struct RunFinished {
  std::array<std::size_t, kCaseOutcomes> counts{};  // by CaseOutcome; the ledger
  std::size_t expanded = 0;
  double duration_ms = 0;
  double driver_cpu_ms = 0;  // user and system time of the driver itself, without the ranks
  bool interrupted = false;
  bool ledger_exact = true;  // expanded == sum of counts
  int exit_code = 0;
};

using Event = std::variant<RunStarted, PoolSpawned, PoolReady, PoolRetired, CaseStarted, CaseProgress, CaseFinished,
                           RunPaused, RunStopping, OutputLost, RunFinished>;

// A view of the stream. Called on one thread, in order.
class EventSink {
 public:
  EventSink() = default;
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;
  virtual ~EventSink() = default;
  virtual void on_event(const Event& event) = 0;
  // Now and then while a run goes on, whether anything happens or not (RunConfig::tick): for what shows time passing.
  virtual void on_tick() {}
};

}  // namespace cp_pool
