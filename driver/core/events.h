// Everything that happens in a run, as one ordered stream of events. The JSONL file is this stream. The terminal, JUnit
// and the summary are views of the stream and see nothing else. The fields() of an event alone define what its line in
// the JSONL file holds; they are written in that order.
//
// at_ms, where an event has it, is the time of the event in ms since run_started, on the run's clock. Files of earlier
// versions do not have it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cases/case.h"
#include "cases/case_outcome.h"
#include "cases/case_report.h"
#include "cases/diagnosis.h"
#include "cases/enum_names.h"
#include "cases/fields.h"
#include "driver/core/payload.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

enum class VerdictKind {
  real,         // the case fails alone on a fresh pool
  state_leak,   // it fails after one other case (the culprit) on the same pool
  warm_only,    // it fails after several cases of its pool, but after none of them alone
  flaky,        // it fails in some replays and passes in others
  infra,        // the machine failed, and not what ran on it
  unknown,      // the replays contradict each other
  not_triaged,  // the budget was spent before it could be decided
};
template <>
inline constexpr std::array<std::pair<VerdictKind, std::string_view>, 7> kNames<VerdictKind>{
    {{VerdictKind::real, "REAL"},
     {VerdictKind::state_leak, "STATE_LEAK"},
     {VerdictKind::warm_only, "WARM_ONLY"},
     {VerdictKind::flaky, "FLAKY"},
     {VerdictKind::infra, "INFRA"},
     {VerdictKind::unknown, "unknown"},
     {VerdictKind::not_triaged, "not triaged"}}};

struct Verdict {
  VerdictKind kind = VerdictKind::not_triaged;
  std::optional<std::string> culprit;  // ID of the case that leaks state; only of a state leak
  int k = 0;                           // how many of the n deciding replays failed
  int n = 0;
  std::vector<std::string> evidence;  // sentences, in the order of the replays

  static constexpr auto fields() {
    return FieldList{required<&Verdict::kind>(),
                     optional<&Verdict::culprit, &Verdict::k, &Verdict::n, &Verdict::evidence>()};
  }
};

// Identifies a pool among all pools of its world size and device.
struct PoolId {
  std::string key;     // "cpu/2": device and world size
  int generation = 0;  // number of the pool among those started under this key, from 1

  auto operator<=>(const PoolId&) const = default;
  static constexpr auto fields() { return FieldList{required<&PoolId::key, &PoolId::generation>()}; }
};

// The shard of the selected cases that a run has (--shard). The selection as a whole is described too, so that a report
// of all shards can tell whether a case is missing.
struct ShardOfRun {
  std::size_t index = 1;  // from 1
  std::size_t count = 1;  // number of shards
  std::size_t cases = 0;  // number of cases of all shards, each counted once
  std::string ids;        // hash of their IDs
  std::string hash;       // hash of their IDs and fields

  auto operator<=>(const ShardOfRun&) const = default;

  static constexpr auto fields() {
    return FieldList{
        required<&ShardOfRun::index, &ShardOfRun::count, &ShardOfRun::cases, &ShardOfRun::ids, &ShardOfRun::hash>()};
  }
};

struct RunStarted {
  std::string title;      // titles of the matrices
  std::string size = {};  // full | small
  std::string device;
  // What computes the cases: "own", "adapter FILE:NAME" or "worker COMMAND". The first one computes every case whose
  // CaseFinished::implementation is empty. Empty: unknown, as in files of earlier versions.
  std::vector<std::string> implementations = {};
  int shared_gpus = 0;    // number of this machine's GPUs if ranks of some cases will share them, else 0
  std::size_t cases = 0;  // number of cases expanded and selected; the ledger must add up to it
  std::string version = {};
  std::vector<std::string> ids = {};  // IDs of the cases, each once; empty for a stream
  // How long each case of `ids` took in the earlier run that the order follows (--order history), if that run had it.
  // Empty if there is none.
  std::vector<std::optional<double>> earlier_ms = {};
  std::optional<std::string> baseline = std::nullopt;      // file with the times that this run is compared with
  std::optional<std::string> rerun_failed = std::nullopt;  // command that reruns all failures, if there is one
  std::optional<std::uint64_t> seed = std::nullopt;        // seed of a search, whose cases are chosen while it runs
  std::optional<ShardOfRun> shard = std::nullopt;
  std::chrono::system_clock::time_point started = {};  // set by the run itself; "ts" in the JSONL line

  static constexpr const char* kName = "run_started";
  static constexpr auto fields() {
    return FieldList{optional<&RunStarted::title, &RunStarted::size, &RunStarted::device>(),
                     sparse<&RunStarted::implementations>(),
                     optional<&RunStarted::shared_gpus, &RunStarted::cases, &RunStarted::version, &RunStarted::ids>(),
                     sparse<&RunStarted::earlier_ms, &RunStarted::baseline, &RunStarted::rerun_failed,
                            &RunStarted::seed, &RunStarted::shard>()};
  }
};
// Returns the header of a run that starts now. `implementation` computes the cases, unless the header names
// implementations itself. Its other texts are cleaned, since they hold file names as the user typed them.
RunStarted started_now(RunStarted header, const std::string& implementation);

// Returns the implementations as ", implementation: own"; empty if they are unknown.
std::string implementation_text(const RunStarted& header);

struct PoolSpawned {
  PoolId pool;
  int world_size = 0;
  std::vector<int> pids = {};  // process IDs, by rank
  std::optional<double> at_ms = std::nullopt;
  std::vector<int> slots = {};         // numbers of the slots that it holds; empty if slots are not counted
  std::vector<std::string> gpus = {};  // GPUs that its ranks see, as in CUDA_VISIBLE_DEVICES; empty: all

  static constexpr const char* kName = "pool_spawned";
  static constexpr auto fields() {
    return FieldList{required<&PoolSpawned::pool, &PoolSpawned::world_size>(),
                     optional<&PoolSpawned::pids, &PoolSpawned::slots>(),
                     sparse<&PoolSpawned::gpus, &PoolSpawned::at_ms>()};
  }
};

struct PoolReady : protocol::ReadyEvent {
  PoolId pool;
  double spawn_to_ready_ms = 0;
  std::optional<double> at_ms = std::nullopt;

  static constexpr const char* kName = "pool_ready";
  static constexpr auto fields() {
    using S = PoolReady;
    return FieldList{required<&S::pool>(),
                     optional<&S::spawn_to_ready_ms, &S::worker>(),
                     required<&S::protocol, &S::world_size>(),
                     optional<&S::device>(),
                     field("shared_gpus", &protocol::shared_gpus),
                     optional<&S::ranks, &S::capabilities, &S::versions, &S::startup_ms>(),
                     sparse<&S::at_ms>()};
  }
};

// "cpu/2 #1".
inline std::string to_string(const PoolId& id) {
  return id.key + " #" + std::to_string(id.generation);
}

// Why a pool was ended.
enum class RetireReason {
  finished,           // no case was left for it
  start_failed,       // it never got ready: an exit, a timeout or a bad first line
  timeout,            // a case or its diagnosis exceeded the driver's deadline
  crash,              // a rank died during a case or while the pool was idle
  died_after_result,  // a rank died after the result was in
  unhealthy,          // a result with healthy:false
  protocol_break,     // a line with the sentinel is not a valid message
  stdin_broken,       // the pipe to rank 0's stdin broke or stayed full
  max_cases,          // --pool-max-cases
  hygiene,            // memory, file descriptors or threads of a rank grew past a limit
  paused,             // its ranks were stopped (Ctrl-Z) during the start or a case, or have not answered since
  interrupted,        // Ctrl-C
};
template <>
inline constexpr auto kNames<RetireReason> = kSpelledNames<RetireReason::interrupted>;
// Whether the pool ended without anything being wrong with it.
constexpr bool is_expected(RetireReason reason) {
  return reason == RetireReason::finished || reason == RetireReason::interrupted || reason == RetireReason::max_cases ||
         reason == RetireReason::paused;
}

struct RankExit {
  int rank = 0;
  int pid = 0;
  std::string status;     // "exit 3", "signal 11 (SIGSEGV)", "signal 9 (SIGKILL), by the driver"
  std::string host = {};  // the rank's host, if it is not the driver's

  static constexpr auto fields() {
    return FieldList{required<&RankExit::rank, &RankExit::pid, &RankExit::status>(), sparse<&RankExit::host>()};
  }
};

// A process that could not be killed, or that runs on another host and could not be proved to be gone.
struct Leftover {
  int pid = 0;
  std::string state;  // its state in /proc/PID/stat; on another host that of its lifeline, "connected" or "silent"
  std::string wchan = {};
  std::string host = {};  // host of a rank that a launcher started

  static constexpr auto fields() {
    return FieldList{required<&Leftover::pid, &Leftover::state, &Leftover::wchan>(), sparse<&Leftover::host>()};
  }
};

struct PoolRetired {
  PoolId pool;
  RetireReason reason = RetireReason::finished;
  std::string detail;  // one sentence that explains the reason
  int cases = 0;       // number of cases that it ran
  std::vector<RankExit> exits;
  std::vector<Leftover> leftovers;
  std::optional<double> at_ms = std::nullopt;

  static constexpr const char* kName = "pool_retired";
  static constexpr auto fields() {
    return FieldList{
        required<&PoolRetired::pool, &PoolRetired::reason>(),
        optional<&PoolRetired::detail, &PoolRetired::cases, &PoolRetired::exits, &PoolRetired::leftovers>(),
        sparse<&PoolRetired::at_ms>()};
  }
};

struct CaseStarted {
  std::size_t index = 0;  // position in the expanded list of cases
  std::string id;
  std::int64_t seq = 0;
  PoolId pool;
  int attempt = 1;
  std::optional<std::size_t> number = std::nullopt;  // as in CaseFinished
  // Set in a stream only, so that the case is known if the driver dies.
  std::optional<Payload> payload = std::nullopt;
  std::optional<double> at_ms = std::nullopt;

  static constexpr const char* kName = "case_started";
  static constexpr auto fields() {
    return FieldList{optional<&CaseStarted::index>(),
                     required<&CaseStarted::id>(),
                     optional<&CaseStarted::seq>(),
                     required<&CaseStarted::pool>(),
                     optional<&CaseStarted::attempt>(),
                     sparse<&CaseStarted::number>(),
                     field("case", &CaseStarted::payload, Presence::sparse),
                     sparse<&CaseStarted::at_ms>()};
  }
};

// Where a rank of a running case stands, according to its worker.
struct RankStanding : protocol::RankPhase {  // phase: empty if its worker does not tell
  bool silent = false;                       // the rank does not answer

  static constexpr auto fields() {
    return FieldList{required<&RankStanding::rank>(),
                     sparse<&RankStanding::silent, &RankStanding::phase, &RankStanding::ms, &RankStanding::operation,
                            &RankStanding::operation_ms>()};
  }
};

// A case is still running, and its phase has changed (at most one such event a second), it is slow, or somebody has
// asked where its ranks stand.
struct CaseProgress {
  std::size_t index = 0;
  std::string id;
  std::int64_t seq = 0;
  PoolId pool;
  std::string phase;                     // last phase that its worker reported; empty: none
  double running_ms = 0;                 // time since it was sent
  double timeout_ms = 0;                 // how long it may run
  bool slow = false;                     // it has been running for --slow-after, or for 2, 4, 8, .. times as long
  std::vector<RankStanding> ranks = {};  // if somebody has asked: the ranks that could be asked

  static constexpr const char* kName = "case_progress";
  static constexpr auto fields() {
    using S = CaseProgress;
    return FieldList{optional<&S::index>(),
                     required<&S::id>(),
                     optional<&S::seq>(),
                     required<&S::pool>(),
                     optional<&S::phase, &S::running_ms, &S::timeout_ms, &S::slow>(),
                     sparse<&S::ranks>()};
  }
};

// The run is being stopped: running cases are cancelled, and pools end. The run waits for the cases and pools that
// earlier events have started.
struct RunStopping {
  enum class Reason {
    interrupted,     // Ctrl-C, SIGTERM or SIGHUP
    killed,          // a second signal: every process is killed at once
    global_timeout,  // --global-timeout
    outdated,        // written by versions up to 0.1, whose cp-pool watch ended a run when files had changed
  };
  Reason reason = Reason::interrupted;
  double limit_ms = 0;  // time after which every process that still runs will have been killed

  static constexpr const char* kName = "run_stopping";
  static constexpr auto fields() {
    return FieldList{required<&RunStopping::reason>(), optional<&RunStopping::limit_ms>()};
  }
};
template <>
inline constexpr auto kNames<RunStopping::Reason> = kSpelledNames<RunStopping::Reason::outdated>;

struct StderrTail {
  int rank = 0;
  std::string text;    // the last 4 KiB that it wrote in this case, cleaned
  bool fenced = true;  // false: the fence was missing, so lines of this case may be missing or lines of others present
  // Name of the launcher if rank is -1: the text is of the launcher and of all ranks that write to its stderr.
  std::string of = {};

  static constexpr auto fields() {
    return FieldList{required<&StderrTail::rank, &StderrTail::fenced, &StderrTail::text>(), sparse<&StderrTail::of>()};
  }
};

// Why a search ran a case (driver/search/search.h).
enum class SearchStep {
  drawn,     // it was drawn at random
  kept,      // an earlier search had found it
  again,     // to see whether it fails again
  smaller,   // it is simpler, to see whether it fails in the same way
  smallest,  // it is the simplest that failed in the same way, run once more
};
template <>
inline constexpr auto kNames<SearchStep> = kSpelledNames<SearchStep::smallest>;

// Whether the case was run to learn more about a known failure of it or of a case like it.
constexpr bool is_try(std::optional<SearchStep> step) {
  return step == SearchStep::again || step == SearchStep::smaller || step == SearchStep::smallest;
}

// Whether reports show the smallest failing case instead of this one.
constexpr bool is_shown_by_smallest(std::optional<SearchStep> step) {
  return is_try(step) && step != SearchStep::smallest;
}

// How the first run of a case ended.
struct FirstRun {
  CaseOutcome outcome = CaseOutcome::not_run;
  std::string reason;

  static constexpr auto fields() { return FieldList{required<&FirstRun::outcome>(), optional<&FirstRun::reason>()}; }
};

// The end that an override of cp-pool.toml expects of a case (docs/configuration.md).
struct Expected {
  CaseOutcome outcome = CaseOutcome::fail;  // fail: it is expected not to pass; skip: it is not sent to a worker
  std::string reason = {};
  bool strict = false;  // if it is expected to fail: a pass counts as a failure of the run

  bool operator==(const Expected&) const = default;

  static constexpr auto fields() {
    return FieldList{required<&Expected::outcome, &Expected::reason>(), sparse<&Expected::strict>()};
  }
};

// How a case ended in an earlier recorded run (docs/command_line.md).
struct EarlierRun {
  std::string run;                             // the ID of the run
  CaseOutcome outcome = CaseOutcome::not_run;  // the worst one if the case ran several times
  double duration_ms = 0;

  static constexpr auto fields() {
    return FieldList{required<&EarlierRun::run, &EarlierRun::outcome>(), optional<&EarlierRun::duration_ms>()};
  }
};

struct CaseFinished;
bool is_unverified_by_figures(const CaseFinished& event);  // figures.h
bool is_checked_by_itself(const CaseFinished& event);

// What is known of a case before it is run.
struct NamedCase {
  std::string id;
  Payload payload = {};
  std::string rerun = {};  // the exact command that reruns this case alone
  int run = 1;             // which of the `runs` runs of this case in one run (--repeat) it is, from 1
  int runs = 1;
  // The number of its line in a stream; in a search, its place in the order in which cases begin, from 1; else none.
  std::optional<std::size_t> number = std::nullopt;
  std::optional<SearchStep> search = std::nullopt;  // why a search ran it; none if the run is no search
  std::optional<Expected> expected = std::nullopt;  // none: it is expected to pass
};

struct CaseFinished : NamedCase {
  std::size_t index = 0;
  // If one report combines several runs, and the case is taken from a later one: how it ended in the first that had it.
  std::optional<FirstRun> first_run = std::nullopt;
  std::vector<EarlierRun> earlier = {};  // earlier runs of this case, the oldest first, if a report asks for them
  std::string implementation = {};       // as in RunStarted, if an override names it for this case; else empty
  // By which its dump and its trace are named, if that is not the ID: with --dump or --trace, for cases of one ID.
  std::string dump_name = {};
  std::int64_t seq = 0;        // 0 if it was never sent to a pool
  std::optional<PoolId> pool;  // none if it was never sent to a pool
  int attempts = 0;
  CaseOutcome outcome = CaseOutcome::not_run;
  bool flaky = false;      // it passed, but not on its first try (--retries)
  std::string reason;      // empty for a pass
  double duration_ms = 0;  // from sending its line to knowing its outcome
  std::vector<protocol::RankResult> ranks;
  std::vector<Check> checks;
  std::map<std::string, double> timings_ms;
  std::vector<protocol::Hygiene> hygiene;
  std::string backend;
  int shared_gpus = 0;       // number of GPUs that the ranks of its pool shared; 0: each rank had a device of its own
  std::string backend_note;  // which part of the case another backend computed, and why; mostly empty
  protocol::AnyJson value;   // what the function of a call returned on rank 0; null: nothing
  // Factor of all bounds of the checks (--bound-factor, or the worker's own); none = 1.
  std::optional<double> bound_factor = std::nullopt;
  // The ranks whose outputs have other bits than in the first run of this case, in a run that runs cases several times.
  // None if this is the first run, if it did not pass, or if the worker tells no hash of its outputs.
  std::optional<std::vector<int>> other_bits;
  // Times and rates, for a pass in a run that takes times and for a case that failed because it was slow.
  std::optional<PerfFigures> perf;
  std::optional<Diagnosis> diagnosis;    // of a fail whose worker was asked for a diagnosis
  std::vector<StderrTail> stderr_tails;  // of outcomes other than pass and skip
  std::optional<double> at_ms = std::nullopt;

  static constexpr const char* kName = "case_finished";
  static constexpr auto fields() {
    using S = CaseFinished;
    return FieldList{optional<&S::index>(),
                     required<&S::id>(),
                     optional<&S::number, &S::run, &S::runs>(),
                     sparse<&S::search>(),
                     required<&S::outcome>(),
                     sparse<&S::flaky, &S::expected>(),
                     optional<&S::reason>(),
                     field("unverified_by_figures", &is_unverified_by_figures),
                     field("checked_by_itself", &is_checked_by_itself, Presence::sparse),
                     optional<&S::duration_ms, &S::seq, &S::pool, &S::attempts>(),
                     sparse<&S::implementation, &S::dump_name>(),
                     optional<&S::backend, &S::shared_gpus, &S::backend_note>(),
                     sparse<&S::value>(),
                     optional<&S::bound_factor, &S::ranks, &S::checks, &S::timings_ms, &S::hygiene, &S::other_bits,
                              &S::perf, &S::diagnosis>(),
                     field("stderr", &S::stderr_tails),
                     sparse<&S::first_run, &S::earlier>(),
                     field("case", &S::payload, Presence::required),
                     optional<&S::rerun>(),
                     sparse<&S::at_ms>()};
  }
};

// Returns the implementation that computes the case; empty if it is unknown.
inline std::string implementation_of(const RunStarted& header, const CaseFinished& event) {
  if (!event.implementation.empty() || header.implementations.empty()) return event.implementation;
  return header.implementations.front();
}

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
// Whether the run counts it as a failure: a failure that was not expected, or a pass of a case that was strictly
// expected to fail.
inline bool is_failure(const CaseFinished& event) {
  if (passed_unexpectedly(event)) return event.expected->strict;
  return is_failure(event.outcome) && !failed_as_expected(event);
}
// Whether a rerun of failures leaves the case out.
inline bool went_well(const CaseFinished& event) {
  return failed_as_expected(event) || (went_well(event.outcome) && !is_failure(event));
}

// A try of a case that will be tried again (--retries), described as if it were the last. A case_finished of the same
// index follows.
struct CaseTried : CaseFinished {
  static constexpr const char* kName = "case_tried";
};

// A failed case was run again after the run's last case, to learn why it failed (--triage).
struct CaseReplayed {
  std::size_t index = 0;  // index of the failed case
  std::string id;
  int replay = 1;              // number of this replay in the run, from 1
  std::size_t before = 0;      // how many cases of the failed pool's history the fresh pool ran before it
  std::string first;           // ID of the first of these cases; empty if there were none
  std::optional<PoolId> pool;  // none if no pool ran it
  CaseOutcome outcome = CaseOutcome::not_run;
  std::string reason;      // empty for a pass
  std::string machine;     // sign that the machine disturbed it, as a sentence; mostly empty
  double duration_ms = 0;  // duration of the failed case alone
  std::optional<double> at_ms = std::nullopt;

  static constexpr const char* kName = "case_replayed";
  static constexpr auto fields() {
    using S = CaseReplayed;
    return FieldList{optional<&S::index>(),  required<&S::id>(),    optional<&S::replay, &S::before>(),
                     sparse<&S::first>(),    optional<&S::pool>(),  required<&S::outcome>(),
                     optional<&S::reason>(), sparse<&S::machine>(), optional<&S::duration_ms>(),
                     sparse<&S::at_ms>()};
  }
};

// Why a case failed, as its replays show.
struct CaseVerdict {
  std::size_t index = 0;
  std::string id;
  int run = 1;  // as in CaseFinished
  int runs = 1;
  Verdict verdict;
  std::optional<double> at_ms = std::nullopt;

  static constexpr const char* kName = "case_verdict";
  static constexpr auto fields() {
    return FieldList{optional<&CaseVerdict::index>(), required<&CaseVerdict::id>(),
                     optional<&CaseVerdict::run, &CaseVerdict::runs>(), required<&CaseVerdict::verdict>(),
                     sparse<&CaseVerdict::at_ms>()};
  }
};

// The driver was stopped for a while (Ctrl-Z) and goes on. No duration or deadline of the run includes that time.
struct RunPaused {
  double paused_ms = 0;
  bool ranks_stopped = false;  // always false; earlier versions stopped ranks at Ctrl-Z
  std::optional<double> at_ms = std::nullopt;

  static constexpr const char* kName = "run_paused";
  static constexpr auto fields() {
    return FieldList{optional<&RunPaused::paused_ms, &RunPaused::ranks_stopped>(), sparse<&RunPaused::at_ms>()};
  }
};

// An output that the pools write cannot be written. The run goes on. There is one such event for each output.
struct OutputLost {
  std::string output;   // option that asks for the output: "--run-dir"
  std::string message;  // one line that names the file and the cause

  static constexpr const char* kName = "output_lost";
  static constexpr auto fields() { return FieldList{optional<&OutputLost::output, &OutputLost::message>()}; }
};

// The process that an adapter's ranks are forked from is ready, or it cannot be used and ranks are started one by one.
struct ForkServerTold {
  bool ready = false;
  int pid = 0;
  double start_ms = 0;  // time until it was ready or given up
  // Why it cannot be used, as a sentence; if it is ready, why each rank imports the adapter by itself, or empty.
  std::string reason;

  static constexpr const char* kName = "fork_server";
  static constexpr auto fields() {
    return FieldList{required<&ForkServerTold::ready>(),
                     optional<&ForkServerTold::pid, &ForkServerTold::start_ms, &ForkServerTold::reason>()};
  }
};

// A failure that a search has found, and the smallest case that it was reduced to.
struct SearchFound {
  std::string id;   // the case that failed first
  std::string how;  // text that is equal for all failures of this kind (driver/core/failure_kind.h)
  CaseOutcome outcome = CaseOutcome::fail;
  bool kept = false;         // an earlier search had found it
  std::string smallest;      // ID of the last run of the smallest case that fails in the same way
  Case c;                    // the smallest case
  std::size_t tries = 0;     // number of cases that were run to make it smaller
  double ms = 0;             // time from finding the failure to this event
  std::size_t asked = 0;     // number of runs of the smallest case
  std::size_t failed = 0;    // how many of these failed in the same way; fewer than `asked`: the case is flaky
  std::string note = {};     // why it may not be the smallest, as a sentence; mostly empty
  std::string command = {};  // command that runs the smallest case alone

  static constexpr const char* kName = "search_found";
  static constexpr auto fields() {
    using S = SearchFound;
    return FieldList{required<&S::id, &S::how, &S::outcome>(), optional<&S::kept>(), required<&S::smallest>(),
                     field("case", &S::c, Presence::required),
                     optional<&S::tries, &S::ms, &S::asked, &S::failed, &S::note, &S::command>()};
  }
};

// A trait that no judged case had, because the worker skipped all cases that had it.
struct NeverJudged {
  std::string what;
  std::size_t cases = 0;
  std::string reason;  // why the worker skipped one of them

  static constexpr auto fields() {
    return FieldList{required<&NeverJudged::what>(), optional<&NeverJudged::cases, &NeverJudged::reason>()};
  }
};

// How many of the judged cases had a trait or an edge.
struct CasesWith {
  std::string what;
  std::size_t cases = 0;

  static constexpr auto fields() { return FieldList{required<&CasesWith::what>(), optional<&CasesWith::cases>()}; }
};

// The end of a search, with a summary of what it tried. It comes before run_finished.
struct SearchFinished {
  std::string why;                 // why the search ended, as a sentence
  std::size_t judged = 0;          // number of drawn cases that were judged; skipped cases do not count
  std::size_t skipped = 0;         // number of drawn cases that the worker skipped
  std::size_t found = 0;           // number of kinds of failure
  std::size_t repeated = 0;        // number of failures of a kind that had been found before
  double ms = 0;                   // time from the first case to the end, including that for making failures smaller
  std::vector<std::string> fixed;  // values fixed by --set, such as "comm=p2p"
  std::vector<CasesWith> tried;    // traits of the judged cases (cases/search/traits.h)
  std::vector<CasesWith> edges;    // edges of the judged cases (cases/search/edges.h)
  std::vector<NeverJudged> never_judged;  // traits that only skipped cases had
  std::size_t kept = 0;                   // number of cases run because earlier searches had found them
  std::vector<std::string> kept_passing;  // IDs of those that pass now
  std::string file;                       // file that keeps what is found; empty: none

  static constexpr const char* kName = "search_finished";
  static constexpr auto fields() {
    using S = SearchFinished;
    return FieldList{optional<&S::why, &S::judged, &S::skipped, &S::found, &S::repeated, &S::ms, &S::fixed, &S::tried,
                              &S::edges, &S::never_judged, &S::kept, &S::kept_passing, &S::file>()};
  }
};

struct RunFinished {
  OutcomeCounts counts{};  // number of cases by outcome
  std::size_t expanded = 0;
  std::size_t flaky = 0;              // passes on a later try
  std::size_t expected_failures = 0;  // failures that were expected
  std::size_t unexpected_passes = 0;  // passes of cases that were expected to fail
  std::size_t strict_passes = 0;      // unexpected passes that count as failures of the run
  std::size_t expected_skips = 0;     // skips of cases that were not to be sent to a worker
  double duration_ms = 0;
  double driver_cpu_ms = 0;  // user and system time of the driver, without the ranks
  bool interrupted = false;
  bool ledger_exact = true;  // expanded == sum of counts
  // In a report of several runs: sentences about shards that are missing, and about cases that no shard has.
  std::vector<std::string> incomplete = {};
  bool partial = false;  // an incomplete report is accepted (--partial)
  int exit_code = 0;

  static constexpr const char* kName = "run_finished";
  static constexpr auto fields() {
    using S = RunFinished;
    return FieldList{
        required<&S::expanded>(),
        optional<&S::counts>(),
        sparse<&S::flaky, &S::expected_failures, &S::unexpected_passes, &S::strict_passes, &S::expected_skips>(),
        optional<&S::ledger_exact>(),
        sparse<&S::incomplete, &S::partial>(),
        optional<&S::interrupted, &S::duration_ms, &S::driver_cpu_ms, &S::exit_code>()};
  }
};

using AnyEvent = std::variant<RunStarted, PoolSpawned, PoolReady, PoolRetired, CaseStarted, CaseProgress, CaseTried,
                              CaseFinished, CaseReplayed, CaseVerdict, RunPaused, RunStopping, OutputLost,
                              ForkServerTold, SearchFound, SearchFinished, RunFinished>;

// One event of the stream. std::visit, std::get_if and std::holds_alternative take it as the variant that it is. It is
// a class so that copying, moving and destroying it, which goes through every member of every event, is compiled once
// (events.cpp) and not in each unit that hands an event on.
class Event : public AnyEvent {
 public:
  Event();  // as a variant without a value given: a RunStarted
  template <typename Alternative>
    requires requires { Alternative::kName; }
  Event(Alternative event)  // NOLINT(google-explicit-constructor): as a variant
      : AnyEvent(std::in_place_type<Alternative>, std::move(event)) {}
  Event(const Event& other);
  Event(Event&& other) noexcept;
  Event& operator=(const Event& other);
  Event& operator=(Event&& other) noexcept;
  ~Event();
};

// A view of the stream. All calls come from one thread, in the order of the events.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on_event(const Event& event) = 0;
  // Called every RunConfig::tick while a run goes on, whether anything happened or not, so that a view can show time
  // passing.
  virtual void on_tick() {}
};

}  // namespace cp_pool
