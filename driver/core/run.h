// Runs cases on warm pools: all of the driver's work behind the command line.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cases/case_outcome.h"
#include "cases/enum_names.h"
#include "cases/fields.h"
#include "driver/core/events.h"
#include "driver/core/ledger.h"
#include "driver/core/payload.h"
#include "driver/core/rank_environment.h"
#include "worker/protocol/line_framer.h"

namespace cp_pool {

// Decides whether a case that did not pass is run once more (--retries, --retry-on).
struct Retries {
  int most = 0;  // retries of one case
  // Outcomes that are retried. `fail` is among them only if the user names it: one wrong answer is enough, however
  // often others are right.
  std::set<CaseOutcome> on{CaseOutcome::crash, CaseOutcome::timeout, CaseOutcome::infra, CaseOutcome::error};

  // made: number of retries that the case has had.
  [[nodiscard]] bool allow(CaseOutcome outcome, int made) const { return made < most && on.contains(outcome); }
};

// The program that every rank runs, and how it is started.
struct RankProgram {
  std::vector<std::string> worker_command = {};  // argv; the program is looked up in PATH as execvp does
  // argv of the process that ranks are forked from (driver/ranks/fork_server.h); empty: each rank is started on its
  // own.
  std::vector<std::string> fork_server = {};
  bool start_timeout_grows = false;  // RunSettings::start_timeout, with the number of ranks per core (start_timeout_of)
  std::string implementation = {};   // the name of worker_command, as in RunStarted; empty: unknown

  auto operator<=>(const RankProgram&) const = default;
};

// The launch settings of the ranks of one item that differ from RunConfig (docs/configuration.md). Without a
// worker_command, the ranks run the program of RunConfig.
struct OwnRanks : RankProgram {
  // "NAME=VALUE", sorted; set in addition to the environment of the run's ranks.
  std::vector<std::string> environment = {};
  int slots = 0;  // number of slots that the pool holds; 0 = one for each rank

  auto operator<=>(const OwnRanks&) const = default;

  static constexpr auto fields() {
    return FieldList{
        field("worker", &OwnRanks::worker_command, Presence::sparse),
        sparse<&OwnRanks::fork_server, &OwnRanks::start_timeout_grows, &OwnRanks::environment, &OwnRanks::slots>()};
  }
};

// What a run schedules: a case, as the documentation calls it, whatever its payload is. An item that is expected to be
// skipped is not sent to a worker.
struct Item : NamedCase {
  std::optional<double> baseline_ms = std::nullopt;  // median step time in the run that this one is compared with
  bool replay = false;  // it replays a failure: its worker writes no diagnosis, dump or trace
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;  // none = RunConfig::timeout
  std::optional<int> retries = std::nullopt;                        // none = RunConfig::retries.most
  std::optional<OwnRanks> ranks = std::nullopt;
};

// Returns CaseFinished::implementation of the item.
inline std::string implementation_of(const Item& named) {
  return named.ranks ? named.ranks->implementation : "";
}

// The longest duration that an option or a message may set: sums and multiples of it stay within the range of Clock.
inline constexpr std::chrono::hours kLongestDuration{1000};

// The budget for all replays of a run: triage ends at the limit that is reached first.
struct TriageLimits {
  int replays = 20;
  std::chrono::milliseconds time{600'000};
};

// A launcher starts the ranks of a pool, on this host or on others (driver/ranks/launcher.h).
enum class LauncherKind {
  local,     // no launcher: the driver starts the ranks as its own processes
  torchrun,  // on this host only
  mpirun,
  srun,
  custom,  // a command line of the user's own
};
// A custom launcher has no name of its own: it is called by its program.
template <>
inline constexpr auto kNames<LauncherKind> = kSpelledNames<LauncherKind::srun>;

struct Launcher {
  LauncherKind kind = LauncherKind::local;
  std::vector<std::string> words = {};  // command line of a custom launcher, with placeholders
  bool operator==(const Launcher&) const = default;
};

// The share that one host has of a pool's ranks. Ranks are numbered from host to host.
struct HostShare {
  std::string host;
  int ranks = 0;
  std::vector<int> slots = {};  // slots that they hold, numbered from 0 on the host; empty: slots are not counted
  bool operator==(const HostShare&) const = default;
};

// How much a rank may grow since its pool's first case before the pool is retired; 0 = no limit.
struct HygieneLimits {
  std::int64_t rss_kib = std::int64_t{4} << 20U;
  std::int64_t fds = 256;
  std::int64_t threads = 256;
};

// The settings of a run that a client of a service sends (service/messages.h): which worker, on which device, with
// which deadlines and limits.
struct RunSettings : RankProgram {
  std::string device = "cpu";
  bool share_gpus = true;                          // ranks may share a GPU if there are fewer GPUs than ranks
  std::chrono::milliseconds timeout{90000};        // of a case, from sending its line
  std::chrono::milliseconds start_timeout{60000};  // of a pool, from spawning its ranks until it is ready
  std::chrono::milliseconds grace{5000};           // from SIGTERM to SIGKILL, and from the shutdown request to SIGTERM
  std::chrono::milliseconds global_timeout{0};     // for the whole run; 0 = none
  // A case that runs for longer is reported as slow (CaseProgress); 0 = never.
  std::chrono::milliseconds slow_after{10000};
  int max_consecutive_timeouts = 3;
  int max_failures = 0;        // after so many failures the remaining cases are not_run; 0 = no limit
  Retries retries;             // of cases that did not pass
  bool flaky_fails = false;    // a pass on a later try gives the exit code of a failure
  bool compare_runs = false;   // a pass whose outputs have other bits than the first pass of its ID is a failure
  bool no_skip = false;        // a skip gives the exit code of a case that nobody judged
  bool expect_judged = false;  // if every case is skipped, the run has that exit code, too
  std::optional<double> bound_factor;             // the worker multiplies every bound by it; none = 1
  std::optional<std::filesystem::path> dump_dir;  // sent to the worker with each case; none = no dumps
  bool reference_cache = true;                    // sent to the worker with each case
  bool diagnosis = true;                          // ask workers that offer it why a case failed
  std::chrono::milliseconds diagnosis_time{0};    // how long that may take; 0 = as `timeout` allows (diagnosis_time_of)

  static constexpr auto fields() {
    using S = RunSettings;
    return FieldList{field("worker", &S::worker_command),
                     optional<&S::fork_server, &S::device, &S::share_gpus>(),
                     field("timeout_ms", &S::timeout),
                     field("start_timeout_ms", &S::start_timeout),
                     optional<&S::start_timeout_grows>(),
                     field("grace_ms", &S::grace),
                     field("global_timeout_ms", &S::global_timeout),
                     field("slow_after_ms", &S::slow_after),
                     optional<&S::max_consecutive_timeouts, &S::max_failures>(),
                     field("retries", [](auto& settings) -> auto& { return settings.retries.most; }),
                     field("retry_on", [](auto& settings) -> auto& { return settings.retries.on; }),
                     optional<&S::flaky_fails, &S::compare_runs, &S::no_skip, &S::expect_judged>(),
                     sparse<&S::bound_factor, &S::dump_dir>(),
                     optional<&S::reference_cache, &S::diagnosis>(),
                     field("diagnosis_time_ms", &S::diagnosis_time)};
  }
};

struct RunConfig : RunSettings {
  Launcher launcher = {};  // starts the ranks
  // The hosts of the launcher's allocation, with their slots; empty: there is one host, or the hosts are not known.
  std::vector<HostShare> hosts = {};
  std::chrono::milliseconds fork_patience{10000};  // how long the fork server may take to answer a request for a rank
  // Working directory and environment of the ranks; none: those of this process.
  std::optional<ProcessEnvironment> process = {};
  // Added to diagnosis_time, so that a worker can free and reconnect its ranks.
  std::chrono::milliseconds diagnosis_grace{2000};
  std::chrono::milliseconds stack_wait{500};  // after a timeout: from SIGUSR2 (write your stack) to SIGTERM
  int max_failed_starts = 3;                  // in a row, of the pools of one key; then its cases become infra
  int pool_max_cases = 0;                     // a pool that has run so many is retired; 0 = never
  bool triage = false;                        // replay failures after the last case, to learn why they failed
  TriageLimits triage_limits;
  std::optional<std::filesystem::path> capsules;  // folder that gets a folder for each failure; none = none are written
  std::optional<std::filesystem::path> run_dir;   // folder for the full stderr and stdout of each pool; none = not kept
  std::optional<protocol::PerfRequest> perf;      // how to time every case that passes; none = no times
  std::optional<double> max_ratio;                // a pass that took more than max_ratio * baseline_ms is a failure
  HygieneLimits hygiene;
  std::chrono::milliseconds tick{1000};  // interval of EventSink::on_tick; 0 = never called
  // How many ranks may work at the same time, over all pools (driver/pool/scheduler.h; a larger pool counts as this
  // many). 0 = one for each of `gpus`; if `gpus` is empty, the number of CPU cores for device cpu, and one pool at a
  // time for any other device.
  int slots = 0;
  bool spare = false;  // FleetSettings::spare
  // The GPUs that may be used, as CUDA_VISIBLE_DEVICES names them. If there is a slot for each, a pool sees the GPUs of
  // its slots, else every pool sees all of them. Empty: every pool sees all visible GPUs.
  std::vector<std::string> gpus = {};
  // Called after each tick. Returns how often somebody has asked so far where the ranks of running cases stand. When
  // the number has grown, the workers are asked, and each answer becomes an event (CaseProgress::ranks). Empty: never
  // called.
  std::function<std::uint64_t()> status_requests = nullptr;
};

// Returns `config` with the values that `ranks` sets for one case in their place.
RunConfig config_for(const RunConfig& config, const std::optional<OwnRanks>& ranks);
inline Retries retries_of(const Item& named, const RunConfig& config) {
  return {.most = named.retries.value_or(config.retries.most), .on = config.retries.on};
}

// How long a pool of `ranks` may take to get ready. If every rank imports a large library, ranks that share a core get
// ready one after another; so a deadline that grows is multiplied by ranks / cores, where that is more than 1.
std::chrono::milliseconds start_timeout_of(const RunConfig& config, int ranks);

// How long the diagnosis of a fail may take: config.diagnosis_time, else 20 s, or 20 % of config.timeout if that is
// less.
std::chrono::milliseconds diagnosis_time_of(const RunConfig& config);

// The conditions besides failures that make the run unsuccessful.
inline Demands demands_of(const RunConfig& config) {
  return {.no_skip = config.no_skip, .some_judged = config.expect_judged, .flaky_fails = config.flaky_fails};
}

struct RunResult {
  RunFinished finished;          // the last event of the run
  bool input_was_cut = false;    // a stream of cases was not read to its end because the run was stopped
  std::string input_error = {};  // why the stream could not be read to its end, as a sentence; mostly empty
};

// run_cases, run_stream and run_source must be called on the main thread, because parent-death signals follow the
// spawning thread. While one of them runs, it reaps every child of the process. Each emits every event of the run,
// run_started first and run_finished last, and throws for nothing that a worker does. SIGINT, SIGTERM and SIGHUP stop
// the run: the first one cleanly, a second one at once. An exception of a sink ends the run, leaves no process behind,
// and is rethrown. They throw std::system_error if the process cannot be set up.

// Pools work side by side as far as the slots allow, several of one world size too. Cases of a world size begin in list
// order, except that a case may be brought forward to a pool that has already computed what it needs
// (driver/pool/case_queue.h).
RunResult run_cases(const std::vector<Item>& cases, const RunConfig& config, const RunStarted& header, EventSink& sink);

// Returns the case of one line of a stream. Returns nullopt for a line to pass over: an empty one, or one whose error
// the function has reported itself. Called for the lines in order, each when there is room for a case.
using ReadCase = std::function<std::optional<Item>(const protocol::Line& line)>;

// Runs the cases of fd (a pipe, terminal, file or socket; not closed here) as they arrive, up to `jobs` of them at
// once, until the end of the input. Pools stay warm between cases, which begin in their order. header.cases is not
// known in advance and is left as it is; run_finished counts the cases that were read. If reading failed, throws
// CaseError after run_finished.
RunResult run_stream(int fd, const ReadCase& read_case, const RunConfig& config, const RunStarted& header,
                     EventSink& sink, int jobs = 1);

// Which cases may begin beside those that run: at most one case of each number of ranks runs at a time, and no more
// ranks than may work at once.
class Room {
 public:
  explicit Room(int ranks) : all_(ranks), free_(ranks) {}

  // Whether a case of so many ranks is running.
  [[nodiscard]] bool is_taken(int ranks) const { return taken_.contains(ranks); }
  // Whether a case of so many ranks could begin. A number above the limit counts as the limit.
  [[nodiscard]] bool has(int ranks) const { return !is_taken(ranks) && std::min(ranks, all_) <= free_; }

  void take(int ranks) {
    taken_.insert(ranks);
    free_ -= std::min(ranks, all_);
  }
  void give_back(int ranks) {
    taken_.erase(ranks);
    free_ += std::min(ranks, all_);
  }

 private:
  int all_;
  int free_;
  std::set<int> taken_;
};

// A source of cases that chooses each case when it can begin, knowing how earlier ones ended.
class CaseSource {
 public:
  virtual ~CaseSource() = default;

  // Returns the next case, which must fit into `room`. nullopt: there is none until a running case ends; if no case is
  // running, there are no more cases.
  virtual std::optional<Item> next(const Room& room) = 0;
  // Called when a case has ended and its event was emitted. Returns events to emit after it.
  virtual std::vector<Event> ended(const CaseFinished& finished) = 0;
  // Called when the run is stopped. next() is not called again, and cases that end from now on say nothing about
  // themselves.
  virtual void abandoned() = 0;
  // Called when no case is running any more; next() is not called again. Returns the last events before run_finished.
  virtual std::vector<Event> end() = 0;
};

// Runs the cases of the source on pools that stay warm, until it has no more or the run is stopped.
RunResult run_source(CaseSource& source, const RunConfig& config, const RunStarted& header, EventSink& sink);

}  // namespace cp_pool
