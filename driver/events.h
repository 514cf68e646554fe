// Everything that happens in a run, in one ordered stream. The JSONL file is this stream; terminal, JUnit and summary
// are views of it: none of them sees anything else. What a line of the file holds is said in the fields() of its event
// alone, in the order in which they are written.
//
// at_ms, where an event has it: when it happened, on the run's clock, since run_started. None in events of earlier
// versions.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "cases/case.h"
#include "cases/case_outcome.h"
#include "cases/case_report.h"
#include "cases/diagnosis.h"
#include "cases/enum_names.h"
#include "cases/fields.h"
#include "driver/perf_figures.h"
#include "driver/verdict.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// Which pool, of those of a world size and device.
struct PoolId {
  std::string key;     // "cpu/2": device and world size
  int generation = 0;  // counts the pools started under this key, from 1

  static constexpr auto fields() {
    return std::tuple{field("key", &PoolId::key, Presence::required),
                      field("generation", &PoolId::generation, Presence::required)};
  }
};

struct RunStarted {
  std::string title;  // of the matrices
  std::string size;   // full | small
  std::string device;
  int shared_gpus = 0;    // this machine's GPUs, if ranks of some cases will share them; else 0
  std::size_t cases = 0;  // expanded and selected: what the ledger must add up to
  std::string version;
  std::vector<std::string> ids;                            // of the cases, each once; empty for a stream
  std::optional<std::string> baseline = std::nullopt;      // the file that times are compared with
  std::optional<std::string> rerun_failed = std::nullopt;  // the command that reruns all that fails, if there is one
  std::optional<std::uint64_t> seed = std::nullopt;        // of a search: its cases are decided while it goes on
  std::chrono::system_clock::time_point started;           // set by the run itself; "ts" of its line

  static constexpr const char* kName = "run_started";
  static constexpr auto fields() {
    return std::tuple{field("title", &RunStarted::title),
                      field("size", &RunStarted::size),
                      field("device", &RunStarted::device),
                      field("shared_gpus", &RunStarted::shared_gpus),
                      field("cases", &RunStarted::cases),
                      field("version", &RunStarted::version),
                      field("ids", &RunStarted::ids),
                      field("baseline", &RunStarted::baseline, Presence::sparse),
                      field("rerun_failed", &RunStarted::rerun_failed, Presence::sparse),
                      field("seed", &RunStarted::seed, Presence::sparse)};
  }
};

struct PoolSpawned {
  PoolId pool;
  int world_size = 0;
  std::vector<int> pids;  // by rank
  std::optional<double> at_ms = std::nullopt;
  std::vector<int> slots = {};         // that it holds, by number; empty: slots are not counted
  std::vector<std::string> gpus = {};  // that its ranks see, as CUDA_VISIBLE_DEVICES has them; empty: all

  static constexpr const char* kName = "pool_spawned";
  static constexpr auto fields() {
    return std::tuple{field("pool", &PoolSpawned::pool, Presence::required),
                      field("world_size", &PoolSpawned::world_size, Presence::required),
                      field("pids", &PoolSpawned::pids),
                      field("slots", &PoolSpawned::slots),
                      field("gpus", &PoolSpawned::gpus, Presence::sparse),
                      field("at_ms", &PoolSpawned::at_ms, Presence::sparse)};
  }
};

struct PoolReady {
  PoolId pool;
  double spawn_to_ready_ms = 0;
  protocol::ReadyEvent ready;
  std::optional<double> at_ms = std::nullopt;

  static constexpr const char* kName = "pool_ready";
  static constexpr auto fields() {
    return std::tuple{
        field("pool", &PoolReady::pool, Presence::required),
        field("spawn_to_ready_ms", &PoolReady::spawn_to_ready_ms),
        field("worker", [](auto& event) -> auto& { return event.ready.worker; }),
        field(
            "protocol", [](auto& event) -> auto& { return event.ready.protocol; }, Presence::required),
        field(
            "world_size", [](auto& event) -> auto& { return event.ready.world_size; }, Presence::required),
        field("device", [](auto& event) -> auto& { return event.ready.device; }),
        field("shared_gpus", [](const PoolReady& event) { return protocol::shared_gpus(event.ready); }),
        field("ranks", [](auto& event) -> auto& { return event.ready.ranks; }),
        field("capabilities", [](auto& event) -> auto& { return event.ready.capabilities; }),
        field("versions", [](auto& event) -> auto& { return event.ready.versions; }),
        field("startup_ms", [](auto& event) -> auto& { return event.ready.startup_ms; }),
        field("at_ms", &PoolReady::at_ms, Presence::sparse)};
  }
};

// "cpu/2 #1".
inline std::string to_string(const PoolId& id) {
  return id.key + " #" + std::to_string(id.generation);
}

// Why a pool was given up.
enum class RetireReason {
  finished,           // nothing left for it to do
  start_failed,       // never ready: exit, timeout or a bad first line
  timeout,            // a case, or the diagnosis of one, ran into the driver's deadline
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
template <>
inline constexpr std::array<std::pair<RetireReason, std::string_view>, 12> kNames<RetireReason>{
    {{RetireReason::finished, "finished"},
     {RetireReason::start_failed, "start_failed"},
     {RetireReason::timeout, "timeout"},
     {RetireReason::crash, "crash"},
     {RetireReason::died_after_result, "died_after_result"},
     {RetireReason::unhealthy, "unhealthy"},
     {RetireReason::protocol_break, "protocol_break"},
     {RetireReason::stdin_broken, "stdin_broken"},
     {RetireReason::max_cases, "max_cases"},
     {RetireReason::hygiene, "hygiene"},
     {RetireReason::paused, "paused"},
     {RetireReason::interrupted, "interrupted"}}};
constexpr std::string_view to_string(RetireReason reason) {
  return name_of(reason);
}
// Whether nothing was wrong with the pool.
constexpr bool is_expected(RetireReason reason) {
  return reason == RetireReason::finished || reason == RetireReason::interrupted || reason == RetireReason::max_cases ||
         reason == RetireReason::paused;
}

struct RankExit {
  int rank = 0;
  int pid = 0;
  std::string status;     // "exit 3", "signal 11 (SIGSEGV)", "signal 9 (SIGKILL), by the driver"
  std::string host = {};  // another than the driver's

  static constexpr auto fields() {
    return std::tuple{
        field("rank", &RankExit::rank, Presence::required), field("pid", &RankExit::pid, Presence::required),
        field("status", &RankExit::status, Presence::required), field("host", &RankExit::host, Presence::sparse)};
  }
};

struct Leftover {  // a process that could not be killed, or on another host not be proved to be gone
  int pid = 0;
  std::string state;  // /proc/PID/stat; by its lifeline "connected" or "silent"
  std::string wchan;
  std::string host = {};  // of a launched rank

  static constexpr auto fields() {
    return std::tuple{
        field("pid", &Leftover::pid, Presence::required), field("state", &Leftover::state, Presence::required),
        field("wchan", &Leftover::wchan, Presence::required), field("host", &Leftover::host, Presence::sparse)};
  }
};

struct PoolRetired {
  PoolId pool;
  RetireReason reason = RetireReason::finished;
  std::string detail;  // one sentence
  int cases = 0;       // it ran
  std::vector<RankExit> exits;
  std::vector<Leftover> leftovers;
  std::optional<double> at_ms = std::nullopt;

  static constexpr const char* kName = "pool_retired";
  static constexpr auto fields() {
    return std::tuple{field("pool", &PoolRetired::pool, Presence::required),
                      field("reason", &PoolRetired::reason, Presence::required),
                      field("detail", &PoolRetired::detail),
                      field("cases", &PoolRetired::cases),
                      field("exits", &PoolRetired::exits),
                      field("leftovers", &PoolRetired::leftovers),
                      field("at_ms", &PoolRetired::at_ms, Presence::sparse)};
  }
};

struct CaseStarted {
  std::size_t index = 0;  // in the expanded list
  std::string id;
  std::int64_t seq = 0;
  PoolId pool;
  int attempt = 1;
  std::optional<std::size_t> number = std::nullopt;  // as in CaseFinished
  std::optional<Case> c = std::nullopt;              // of a stream, whose cases are nowhere else if the driver dies
  std::optional<double> at_ms = std::nullopt;

  static constexpr const char* kName = "case_started";
  static constexpr auto fields() {
    return std::tuple{field("index", &CaseStarted::index),
                      field("id", &CaseStarted::id, Presence::required),
                      field("seq", &CaseStarted::seq),
                      field("pool", &CaseStarted::pool, Presence::required),
                      field("attempt", &CaseStarted::attempt),
                      field("number", &CaseStarted::number, Presence::sparse),
                      field("case", &CaseStarted::c, Presence::sparse),
                      field("at_ms", &CaseStarted::at_ms, Presence::sparse)};
  }
};

// Where a rank of a running case stands, as its worker says.
struct RankStanding {
  int rank = 0;
  bool silent = false;      // it does not answer
  std::string phase;        // empty: its worker does not tell
  double ms = 0;            // since it reached the phase
  std::string operation;    // the communication that it waits in; empty: none
  double operation_ms = 0;  // since it began

  static constexpr auto fields() {
    return std::tuple{field("rank", &RankStanding::rank, Presence::required),
                      field("silent", &RankStanding::silent, Presence::sparse),
                      field("phase", &RankStanding::phase, Presence::sparse),
                      field("ms", &RankStanding::ms, Presence::sparse),
                      field("operation", &RankStanding::operation, Presence::sparse),
                      field("operation_ms", &RankStanding::operation_ms, Presence::sparse)};
  }
};

// A case that goes on: its phase is another one than was last told (at most one such event a second), it is slow, or
// somebody has asked where its ranks stand.
struct CaseProgress {
  std::size_t index = 0;
  std::string id;
  std::int64_t seq = 0;
  PoolId pool;
  std::string phase;                     // that its worker reported last; empty: none
  double running_ms = 0;                 // since it was sent
  double timeout_ms = 0;                 // how long it may run
  bool slow = false;                     // it has been running for --slow-after, or for twice, four times, .. as long
  std::vector<RankStanding> ranks = {};  // if asked, those that could be asked

  static constexpr const char* kName = "case_progress";
  static constexpr auto fields() {
    return std::tuple{field("index", &CaseProgress::index),
                      field("id", &CaseProgress::id, Presence::required),
                      field("seq", &CaseProgress::seq),
                      field("pool", &CaseProgress::pool, Presence::required),
                      field("phase", &CaseProgress::phase),
                      field("running_ms", &CaseProgress::running_ms),
                      field("timeout_ms", &CaseProgress::timeout_ms),
                      field("slow", &CaseProgress::slow),
                      field("ranks", &CaseProgress::ranks, Presence::sparse)};
  }
};

// The run is being stopped: running cases are cancelled, and pools end. It waits for the cases and pools that earlier
// events have started.
struct RunStopping {
  enum class Reason {
    interrupted,     // Ctrl-C, SIGTERM or SIGHUP
    killed,          // a second one: no grace for anybody
    global_timeout,  // --global-timeout
    outdated,        // what the ranks run has changed (cp-pool watch)
  };
  Reason reason = Reason::interrupted;
  double limit_ms = 0;  // after which whatever still runs will have been killed

  static constexpr const char* kName = "run_stopping";
  static constexpr auto fields() {
    return std::tuple{field("reason", &RunStopping::reason, Presence::required),
                      field("limit_ms", &RunStopping::limit_ms)};
  }
};
template <>
inline constexpr std::array<std::pair<RunStopping::Reason, std::string_view>, 4> kNames<RunStopping::Reason>{
    {{RunStopping::Reason::interrupted, "interrupted"},
     {RunStopping::Reason::killed, "killed"},
     {RunStopping::Reason::global_timeout, "global_timeout"},
     {RunStopping::Reason::outdated, "outdated"}}};

struct StderrTail {
  int rank = 0;
  std::string text;     // the last 4 KiB of this case, cleaned
  bool fenced = true;   // false: the fence was missing, so lines of this case may be missing or foreign
  std::string of = {};  // not of a rank (rank is -1): of this launcher, and of the ranks that write to it

  static constexpr auto fields() {
    return std::tuple{
        field("rank", &StderrTail::rank, Presence::required), field("fenced", &StderrTail::fenced, Presence::required),
        field("text", &StderrTail::text, Presence::required), field("of", &StderrTail::of, Presence::sparse)};
  }
};

// Why a search ran a case (driver/search/search.h).
enum class SearchStep {
  drawn,     // at random
  kept,      // an earlier search had found it
  again,     // does it fail again?
  smaller,   // does a simpler one fail in the same way?
  smallest,  // of these the simplest that failed, once more
};
template <>
inline constexpr std::array<std::pair<SearchStep, std::string_view>, 5> kNames<SearchStep>{
    {{SearchStep::drawn, "drawn"},
     {SearchStep::kept, "kept"},
     {SearchStep::again, "again"},
     {SearchStep::smaller, "smaller"},
     {SearchStep::smallest, "smallest"}}};

// Whether the case, or one like it, is known to fail, and runs to learn more.
constexpr bool is_try(std::optional<SearchStep> step) {
  return step == SearchStep::again || step == SearchStep::smaller || step == SearchStep::smallest;
}

// Whether reports show the smallest case in place of this one.
constexpr bool is_shown_by_smallest(std::optional<SearchStep> step) {
  return is_try(step) && step != SearchStep::smallest;
}

// What came of a case the first time.
struct FirstRun {
  CaseOutcome outcome = CaseOutcome::not_run;
  std::string reason;
};

// What an override of cp-pool.toml expects of a case (docs/configuration.md).
struct Expected {
  CaseOutcome outcome = CaseOutcome::fail;  // fail: that it does not pass; skip: no worker gets it
  std::string reason;
  bool strict = false;  // with fail: a pass is then a failure of the run

  bool operator==(const Expected&) const = default;

  static constexpr auto fields() {
    return std::tuple{field("outcome", &Expected::outcome, Presence::required),
                      field("reason", &Expected::reason, Presence::required),
                      field("strict", &Expected::strict, Presence::sparse)};
  }
};

// What came of a case in a recorded run before (docs/records.md).
struct EarlierRun {
  std::string run;                             // the ID of the run
  CaseOutcome outcome = CaseOutcome::not_run;  // of one that ran several times the worst
  double duration_ms = 0;

  static constexpr auto fields() {
    return std::tuple{field("run", &EarlierRun::run, Presence::required),
                      field("outcome", &EarlierRun::outcome, Presence::required),
                      field("duration_ms", &EarlierRun::duration_ms)};
  }
};

struct CaseFinished;
bool is_unverified_by_figures(const CaseFinished& event);  // figures.h

struct CaseFinished {
  std::size_t index = 0;
  std::string id;
  std::optional<std::size_t> number = std::nullopt;  // the line of the stream that it is, if it is of one
  int run = 1;                                       // of `runs` of this case in one run (--repeat): which it is
  int runs = 1;
  std::optional<SearchStep> search = std::nullopt;  // none: the run is no search
  // Of a case that an earlier run had run, too, in the report of both. No event has it.
  std::optional<FirstRun> first_run;
  std::vector<EarlierRun> earlier = {};  // of this case, the oldest first, where a report asks for it
  Case c;
  std::int64_t seq = 0;        // 0 if it was never sent
  std::optional<PoolId> pool;  // none if it was never sent
  int attempts = 0;
  CaseOutcome outcome = CaseOutcome::not_run;
  std::optional<Expected> expected = std::nullopt;  // none: that it passes
  bool flaky = false;                               // it passed, and not on its first try (--retries)
  std::string reason;                               // empty for a pass
  double duration_ms = 0;                           // line sent to outcome known
  std::vector<protocol::RankResult> ranks;
  std::vector<Check> checks;
  std::map<std::string, double> timings_ms;
  std::vector<protocol::Hygiene> hygiene;
  std::string backend;
  int shared_gpus = 0;       // how many GPUs the ranks of its pool shared; 0: each rank had a device of its own
  std::string backend_note;  // what of the case another backend computed, and why; mostly empty
  // By which every bound of the checks was multiplied (--bound-factor, or the worker's own); none = 1.
  std::optional<double> bound_factor = std::nullopt;
  // In a run that runs cases several times: of another run of a case, the ranks whose outputs have other bits than in
  // the first. None: it is the first, did not pass, or nothing is known.
  std::optional<std::vector<int>> other_bits;
  std::optional<PerfFigures> perf;       // of a pass in a run that takes times, and of a fail for its time
  std::optional<Diagnosis> diagnosis;    // of a fail whose worker was asked for one
  std::vector<StderrTail> stderr_tails;  // of outcomes other than pass and skip
  std::string rerun;                     // the exact command that reruns this case alone
  std::optional<double> at_ms = std::nullopt;

  static constexpr const char* kName = "case_finished";
  static constexpr auto fields() {
    return std::tuple{field("index", &CaseFinished::index),
                      field("id", &CaseFinished::id, Presence::required),
                      field("number", &CaseFinished::number),
                      field("run", &CaseFinished::run),
                      field("runs", &CaseFinished::runs),
                      field("search", &CaseFinished::search, Presence::sparse),
                      field("outcome", &CaseFinished::outcome, Presence::required),
                      field("flaky", &CaseFinished::flaky, Presence::sparse),
                      field("expected", &CaseFinished::expected, Presence::sparse),
                      field("reason", &CaseFinished::reason),
                      field("unverified_by_figures", &is_unverified_by_figures),
                      field("duration_ms", &CaseFinished::duration_ms),
                      field("seq", &CaseFinished::seq),
                      field("pool", &CaseFinished::pool),
                      field("attempts", &CaseFinished::attempts),
                      field("backend", &CaseFinished::backend),
                      field("shared_gpus", &CaseFinished::shared_gpus),
                      field("backend_note", &CaseFinished::backend_note),
                      field("bound_factor", &CaseFinished::bound_factor),
                      field("ranks", &CaseFinished::ranks),
                      field("checks", &CaseFinished::checks),
                      field("timings_ms", &CaseFinished::timings_ms),
                      field("hygiene", &CaseFinished::hygiene),
                      field("other_bits", &CaseFinished::other_bits),
                      field("perf", &CaseFinished::perf),
                      field("diagnosis", &CaseFinished::diagnosis),
                      field("stderr", &CaseFinished::stderr_tails),
                      field("earlier", &CaseFinished::earlier, Presence::sparse),
                      field("case", &CaseFinished::c, Presence::required),
                      field("rerun", &CaseFinished::rerun),
                      field("at_ms", &CaseFinished::at_ms, Presence::sparse)};
  }
};

inline bool is_to_fail(const std::optional<Expected>& expected) {
  return expected && expected->outcome == CaseOutcome::fail;
}
inline bool is_to_be_skipped(const std::optional<Expected>& expected) {
  return expected && expected->outcome == CaseOutcome::skip;
}
inline bool failed_as_expected(const CaseFinished& event) {
  return is_to_fail(event.expected) && is_failure(event.outcome);
}
inline bool passed_unexpectedly(const CaseFinished& event) {
  return is_to_fail(event.expected) && event.outcome == CaseOutcome::pass;
}
// Whether the run counts it as a failure: it was not expected to fail, or had to and did not.
inline bool is_failure(const CaseFinished& event) {
  if (passed_unexpectedly(event)) return event.expected->strict;
  return is_failure(event.outcome) && !failed_as_expected(event);
}
// Whether a rerun of failures leaves it out.
inline bool went_well(const CaseFinished& event) {
  return failed_as_expected(event) || (went_well(event.outcome) && !is_failure(event));
}

// A try of a case that is not the last (--retries): what would have been its end. A case_finished of the same index
// follows.
struct CaseTried : CaseFinished {
  static constexpr const char* kName = "case_tried";
};

// A failed case was run again after the run's last case, to learn why it had failed (--triage).
struct CaseReplayed {
  std::size_t index = 0;  // of the case
  std::string id;
  int replay = 1;              // of this run: which it is
  std::size_t before = 0;      // how many cases of its pool's history the fresh pool was sent before it
  std::string first;           // the ID of the first of these; empty: there was none
  std::optional<PoolId> pool;  // none: there was none
  CaseOutcome outcome = CaseOutcome::not_run;
  std::string reason;      // empty for a pass
  std::string machine;     // what the machine did to it, as a sentence; mostly empty
  double duration_ms = 0;  // of the case itself
  std::optional<double> at_ms = std::nullopt;

  static constexpr const char* kName = "case_replayed";
  static constexpr auto fields() {
    return std::tuple{field("index", &CaseReplayed::index),
                      field("id", &CaseReplayed::id, Presence::required),
                      field("replay", &CaseReplayed::replay),
                      field("before", &CaseReplayed::before),
                      field("first", &CaseReplayed::first, Presence::sparse),
                      field("pool", &CaseReplayed::pool),
                      field("outcome", &CaseReplayed::outcome, Presence::required),
                      field("reason", &CaseReplayed::reason),
                      field("machine", &CaseReplayed::machine, Presence::sparse),
                      field("duration_ms", &CaseReplayed::duration_ms),
                      field("at_ms", &CaseReplayed::at_ms, Presence::sparse)};
  }
};

// Why a case has failed, as replays tell.
struct CaseVerdict {
  std::size_t index = 0;
  std::string id;
  int run = 1;  // as in CaseFinished
  int runs = 1;
  Verdict verdict;
  std::optional<double> at_ms = std::nullopt;

  static constexpr const char* kName = "case_verdict";
  static constexpr auto fields() {
    return std::tuple{field("index", &CaseVerdict::index),
                      field("id", &CaseVerdict::id, Presence::required),
                      field("run", &CaseVerdict::run),
                      field("runs", &CaseVerdict::runs),
                      field("verdict", &CaseVerdict::verdict, Presence::required),
                      field("at_ms", &CaseVerdict::at_ms, Presence::sparse)};
  }
};

// The driver was stopped for a while (Ctrl-Z), and goes on. No time of the run has this time in it.
struct RunPaused {
  double paused_ms = 0;
  bool ranks_stopped = false;  // with it; false: SIGSTOP and the like, which the driver cannot catch
  std::optional<double> at_ms = std::nullopt;

  static constexpr const char* kName = "run_paused";
  static constexpr auto fields() {
    return std::tuple{field("paused_ms", &RunPaused::paused_ms), field("ranks_stopped", &RunPaused::ranks_stopped),
                      field("at_ms", &RunPaused::at_ms, Presence::sparse)};
  }
};

// An output of the run that its pools write cannot be written. The run goes on; once for each output.
struct OutputLost {
  std::string output;   // the option: "--run-dir"
  std::string message;  // one line that names the file and the cause

  static constexpr const char* kName = "output_lost";
  static constexpr auto fields() {
    return std::tuple{field("output", &OutputLost::output), field("message", &OutputLost::message)};
  }
};

// The process that an adapter's ranks are forked from is ready; or it is of no use, and ranks are started one by one.
struct ForkServerTold {
  bool ready = false;
  int pid = 0;
  double start_ms = 0;  // until it said so
  std::string reason;   // why it is of no use, as a sentence; empty if it is ready

  static constexpr const char* kName = "fork_server";
  static constexpr auto fields() {
    return std::tuple{field("ready", &ForkServerTold::ready, Presence::required), field("pid", &ForkServerTold::pid),
                      field("start_ms", &ForkServerTold::start_ms), field("reason", &ForkServerTold::reason)};
  }
};

// A failure that a search has found, and what became of making it smaller.
struct SearchFound {
  std::string id;   // the case that failed first
  std::string how;  // what every case that fails in the same way has in common (driver/failure_kind.h)
  CaseOutcome outcome = CaseOutcome::fail;
  bool kept = false;       // an earlier search had found it
  std::string smallest;    // the ID of the last run of the smallest case that fails in the same way
  Case c;                  // that case
  std::size_t tries = 0;   // cases that were run to make it smaller
  double ms = 0;           // that all of this took
  std::size_t asked = 0;   // how often the smallest case was run ..
  std::size_t failed = 0;  // .. and failed in the same way; fewer: it is flaky
  std::string note;        // why it may not be the smallest, as a sentence; mostly empty
  std::string command;     // that runs it alone

  static constexpr const char* kName = "search_found";
  static constexpr auto fields() {
    return std::tuple{field("id", &SearchFound::id, Presence::required),
                      field("how", &SearchFound::how, Presence::required),
                      field("outcome", &SearchFound::outcome, Presence::required),
                      field("kept", &SearchFound::kept),
                      field("smallest", &SearchFound::smallest, Presence::required),
                      field("case", &SearchFound::c, Presence::required),
                      field("tries", &SearchFound::tries),
                      field("ms", &SearchFound::ms),
                      field("asked", &SearchFound::asked),
                      field("failed", &SearchFound::failed),
                      field("note", &SearchFound::note),
                      field("command", &SearchFound::command)};
  }
};

// A part of a case that no case had which was judged: the worker skipped all that had it.
struct NeverJudged {
  std::string what;
  std::size_t cases = 0;
  std::string reason;  // of one of them

  static constexpr auto fields() {
    return std::tuple{field("what", &NeverJudged::what, Presence::required), field("cases", &NeverJudged::cases),
                      field("reason", &NeverJudged::reason)};
  }
};

// How many of the cases that were judged had something.
struct CasesWith {
  std::string what;
  std::size_t cases = 0;

  static constexpr auto fields() {
    return std::tuple{field("what", &CasesWith::what, Presence::required), field("cases", &CasesWith::cases)};
  }
};

// The end of a search: what it has tried. It comes before run_finished.
struct SearchFinished {
  std::string why;                        // it ended, as a sentence
  std::size_t judged = 0;                 // of the cases that were drawn; skips do not count
  std::size_t skipped = 0;                // likewise
  std::size_t found = 0;                  // failures of different kinds
  std::size_t repeated = 0;               // failures that were like one of these
  double ms = 0;                          // that drawing took, without making failures smaller
  std::vector<std::string> fixed;         // "comm=p2p", by --set
  std::vector<CasesWith> tried;           // traits (cases/search/traits.h), of the cases that were judged
  std::vector<CasesWith> edges;           // likewise (cases/search/edges.h)
  std::vector<NeverJudged> never_judged;  // traits
  std::size_t kept = 0;                   // cases that earlier searches had found, and that were run
  std::vector<std::string> kept_passing;  // the IDs of those that pass now
  std::string file;                       // that keeps what is found; empty: none

  static constexpr const char* kName = "search_finished";
  static constexpr auto fields() {
    return std::tuple{
        field("why", &SearchFinished::why),           field("judged", &SearchFinished::judged),
        field("skipped", &SearchFinished::skipped),   field("found", &SearchFinished::found),
        field("repeated", &SearchFinished::repeated), field("ms", &SearchFinished::ms),
        field("fixed", &SearchFinished::fixed),       field("tried", &SearchFinished::tried),
        field("edges", &SearchFinished::edges),       field("never_judged", &SearchFinished::never_judged),
        field("kept", &SearchFinished::kept),         field("kept_passing", &SearchFinished::kept_passing),
        field("file", &SearchFinished::file)};
  }
};

struct RunFinished {
  OutcomeCounts counts{};  // the ledger
  std::size_t expanded = 0;
  std::size_t flaky = 0;              // of the passes: on a later try
  std::size_t expected_failures = 0;  // of the failures
  std::size_t unexpected_passes = 0;  // of the passes: the case was expected to fail
  std::size_t strict_passes = 0;      // of these: failures of the run
  std::size_t expected_skips = 0;     // of the skips: no worker was to get the case
  double duration_ms = 0;
  double driver_cpu_ms = 0;  // user and system time of the driver itself, without the ranks
  bool interrupted = false;
  bool ledger_exact = true;  // expanded == sum of counts
  int exit_code = 0;

  static constexpr const char* kName = "run_finished";
  static constexpr auto fields() {
    return std::tuple{field("expanded", &RunFinished::expanded, Presence::required),
                      field("counts", &RunFinished::counts),
                      field("flaky", &RunFinished::flaky, Presence::sparse),
                      field("expected_failures", &RunFinished::expected_failures, Presence::sparse),
                      field("unexpected_passes", &RunFinished::unexpected_passes, Presence::sparse),
                      field("strict_passes", &RunFinished::strict_passes, Presence::sparse),
                      field("expected_skips", &RunFinished::expected_skips, Presence::sparse),
                      field("ledger_exact", &RunFinished::ledger_exact),
                      field("interrupted", &RunFinished::interrupted),
                      field("duration_ms", &RunFinished::duration_ms),
                      field("driver_cpu_ms", &RunFinished::driver_cpu_ms),
                      field("exit_code", &RunFinished::exit_code)};
  }
};

using AnyEvent = std::variant<RunStarted, PoolSpawned, PoolReady, PoolRetired, CaseStarted, CaseProgress, CaseTried,
                              CaseFinished, CaseReplayed, CaseVerdict, RunPaused, RunStopping, OutputLost,
                              ForkServerTold, SearchFound, SearchFinished, RunFinished>;

// One event of the stream: std::visit, std::get_if and std::holds_alternative take it as the variant that it is. It is a
// class so that copying, moving and destroying it, which goes through every member of every event, is compiled once
// (events.cpp) and not in each unit that hands an event on.
class Event : public AnyEvent {
 public:
  template <typename Alternative>
    requires requires(const AnyEvent& any) { std::get_if<std::remove_cvref_t<Alternative>>(&any); }
  Event(Alternative&& event) : AnyEvent(std::forward<Alternative>(event)) {}  // NOLINT(google-explicit-constructor)
  Event();  // as std::variant: a RunStarted without anything
  Event(const Event& other);
  Event(Event&& other) noexcept;
  Event& operator=(const Event& other);
  Event& operator=(Event&& other) noexcept;
  ~Event();
};

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
