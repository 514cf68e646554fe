// Runs a list of cases on warm pools. All of the driver's work behind the command line.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cases/case.h"
#include "driver/events.h"
#include "driver/launcher/launcher.h"
#include "driver/ledger.h"
#include "driver/retries.h"
#include "driver/surroundings.h"
#include "driver/verdict.h"
#include "worker/protocol/line_framer.h"

namespace cp_pool {

// What the ranks of a case are started with, where it is not what RunConfig says (docs/configuration.md).
struct OwnRanks {
  std::vector<std::string> worker_command = {};  // empty: that of the run
  std::vector<std::string> fork_server = {};     // of this command, as in RunConfig
  bool start_timeout_grows = false;              // likewise
  std::vector<std::string> environment = {};     // "NAME=VALUE", sorted; beside what they have
  int slots = 0;                                 // that their pool holds; 0 = one a rank

  auto operator<=>(const OwnRanks&) const = default;

  static constexpr auto fields() {
    return std::tuple{field("worker", &OwnRanks::worker_command, Presence::sparse),
                      field("fork_server", &OwnRanks::fork_server, Presence::sparse),
                      field("start_timeout_grows", &OwnRanks::start_timeout_grows, Presence::sparse),
                      field("environment", &OwnRanks::environment, Presence::sparse),
                      field("slots", &OwnRanks::slots, Presence::sparse)};
  }
};

struct NamedCase {
  std::string id;
  Case c;
  std::string rerun;                                 // the exact command that reruns this case alone
  std::optional<double> baseline_ms = std::nullopt;  // of a step, in the run that this one is compared with
  int run = 1;                                       // of `runs` of this case: which it is (--repeat)
  int runs = 1;
  // The line of the stream that it is, if it is of one; of a search, how many cases began before it, and one.
  std::optional<std::size_t> number = std::nullopt;
  std::optional<SearchStep> search = std::nullopt;  // as in CaseFinished
  bool replay = false;  // of a failure: its worker looks for no cause, and writes neither dump nor trace
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;  // its own deadline; none = RunConfig::timeout
  std::optional<int> retries = std::nullopt;                        // likewise: RunConfig::retries.most
  std::optional<Expected> expected = std::nullopt;  // as in CaseFinished; what is to be skipped gets no worker
  std::optional<OwnRanks> ranks = std::nullopt;
};

// How much a rank's figures may grow since its pool's first case before the pool is retired; 0 = no limit.
struct HygieneLimits {
  std::int64_t rss_kib = std::int64_t{4} << 20U;
  std::int64_t fds = 256;
  std::int64_t threads = 256;
};

struct RunConfig {
  std::vector<std::string> worker_command;  // argv; the binary is looked up like execvp does
  Launcher launcher = {};                   // that starts the ranks
  // The hosts of the allocation that the launcher works in, with their slots; empty: one host, or not known.
  std::vector<HostShare> hosts = {};
  // argv of the process that ranks are forked from (pool/fork_server.h); empty: each rank is started by itself.
  std::vector<std::string> fork_server = {};
  std::chrono::milliseconds fork_patience{10000};  // for its answer when a rank is wanted
  // Of the ranks; none: those of this process.
  std::optional<Surroundings> surroundings = {};
  std::string device = "cpu";
  bool share_gpus = true;                           // ranks may share a GPU where there are fewer than ranks
  std::chrono::milliseconds timeout{90000};         // per case, from the line sent
  std::chrono::milliseconds start_timeout{60000};   // spawn to ready
  bool start_timeout_grows = false;                 // with ranks a core (start_timeout_of)
  std::chrono::milliseconds diagnosis_grace{2000};  // beyond a diagnosis' own time: to free ranks, connect them anew
  std::chrono::milliseconds stack_wait{500};        // of a timed out case: SIGUSR2 (write your stack) to SIGTERM
  std::chrono::milliseconds grace{5000};            // SIGTERM to SIGKILL; shutdown request to SIGTERM
  std::chrono::milliseconds global_timeout{0};      // of the whole run; 0 = none
  std::chrono::milliseconds slow_after{10000};      // a case that runs for longer is told of (CaseProgress); 0 = none
  int max_consecutive_timeouts = 3;
  int max_failed_starts = 3;  // running, of one pool: then its cases cannot be judged
  int pool_max_cases = 0;     // 0 = never
  int max_failures = 0;       // so many failures make the remaining cases not_run; 0 = no limit
  bool triage = false;        // run failures again afterwards, to learn why they failed
  TriageLimits triage_limits;
  std::optional<std::filesystem::path> capsules;  // a folder for each failure in it; none = not kept
  Retries retries;                                // of a case that did not pass
  bool flaky_fails = false;            // a case that passed on a later try makes the exit code that of a failure
  bool compare_runs = false;           // a pass with other output bits than the first of its ID is a failure
  bool no_skip = false;                // a skip makes the exit code that of a case that nobody judged
  bool expect_judged = false;          // the same if every case was skipped
  std::optional<double> bound_factor;  // by which the worker multiplies every bound; none = 1
  std::optional<std::filesystem::path> run_dir;   // full stderr and stdout logs per pool; none = not kept
  std::optional<std::filesystem::path> dump_dir;  // passed to the worker with each case
  bool reference_cache = true;                    // likewise
  std::optional<protocol::PerfRequest> perf;      // take times of every case that passes
  bool diagnosis = true;                          // ask workers that can tell why a case failed
  std::chrono::milliseconds diagnosis_time{0};    // that it may take; 0 = as the timeout has it (diagnosis_time_of)
  std::optional<double> max_ratio;                // a pass that took more than so many baseline_ms is a failure
  HygieneLimits hygiene;
  std::chrono::milliseconds tick{1000};  // how often sinks are told that time passes; 0 = never
  // Ranks that may work at the same time, over all pools (driver/fleet/scheduler.h; a larger pool counts as this many).
  // 0 = a slot for each of `gpus`; without any, the CPU's cores for device cpu, and one pool at a time for any other.
  int slots = 0;
  bool spare = false;  // FleetSettings::spare
  // The GPUs that may be used, as CUDA_VISIBLE_DEVICES names them: where there is a slot for each, a pool sees those of
  // its slots, else every pool sees all. Empty: those that are visible, all to every pool.
  std::vector<std::string> gpus = {};
  // Asked ten times a second while cases run: whether what the ranks were started from is no longer what there is. Then
  // the run is stopped as by SIGINT, but counts as not interrupted. Empty: nobody asks. It must not throw.
  std::function<bool()> outdated = nullptr;
  // Asked after each tick: how often somebody has wanted to know so far where the ranks of running cases stand. Where
  // the number has grown, their workers are asked, and each answer is an event (CaseProgress::ranks). Empty: nobody
  // asks.
  std::function<std::uint64_t()> status_requests = nullptr;
};

// What ranks of the case are started with.
RunConfig config_for(const RunConfig& config, const std::optional<OwnRanks>& ranks);
inline Retries retries_of(const NamedCase& named, const RunConfig& config) {
  return {.most = named.retries.value_or(config.retries.most), .on = config.retries.on};
}

// How long a pool of `ranks` may take to get ready. Ranks that share a core get ready one after another where they
// import a large library each, so a deadline that grows is multiplied by ranks / cores.
std::chrono::milliseconds start_timeout_of(const RunConfig& config, int ranks);
std::chrono::milliseconds grown_start_timeout(std::chrono::milliseconds timeout, int ranks, int cores);

// How long the diagnosis of a fail may take: what the config says, else 5 s, or 20 % of the time of a case if that is
// less.
std::chrono::milliseconds diagnosis_time_of(const RunConfig& config);

// What of the run is no success beside its failures.
inline Demands demands_of(const RunConfig& config) {
  return {.no_skip = config.no_skip, .some_judged = config.expect_judged, .flaky_fails = config.flaky_fails};
}

struct RunResult {
  RunFinished finished;        // also the last event
  bool input_was_cut = false;  // a stream of cases was not read to its end: the run was stopped
  std::string input_error;     // why it could not be read to its end, as a sentence; mostly empty
};

// Both must be called on the main thread (parent-death signals follow the spawning thread), and while they run every
// child of the process is theirs. They emit every event of the run, run_started first and run_finished last, and never
// throw for anything that a worker does: SIGINT, SIGTERM and SIGHUP stop the run, first cleanly, then at once. What a
// sink throws ends the run, leaves no process behind, and is thrown on; so is std::system_error where the process
// cannot be set up.

// Pools work side by side as far as the slots let them, several of one world size too. Cases of a world size begin in
// list order, but for those that stay with a pool that has computed what they share (driver/fleet/case_queue.h).
RunResult run_cases(const std::vector<NamedCase>& cases, const RunConfig& config, const RunStarted& header,
                    EventSink& sink);

// Reads one line of a stream and gives its case, or nullopt for a line to pass over (an empty one, or one whose error
// the function has shown itself). Called in order, each time when there is room for a case.
using ReadCase = std::function<std::optional<NamedCase>(const protocol::Line& line)>;

// Runs the cases of fd (a pipe, terminal, file or socket; not closed here) as they arrive, `jobs` of them at once,
// until its end; pools stay warm between them. They begin in their order. header.cases is not known and stays as it is;
// run_finished counts what was read. Throws CaseError, after that, if the end was an error of reading.
RunResult run_stream(int fd, const ReadCase& read_case, const RunConfig& config, const RunStarted& header,
                     EventSink& sink, int jobs = 1);

// Which cases may begin beside those that run: one of each number of ranks, and as many ranks as may work at once.
class Room {
 public:
  explicit Room(int ranks) : all_(ranks), free_(ranks) {}

  // Whether a case of so many ranks runs.
  [[nodiscard]] bool is_taken(int ranks) const { return taken_.contains(ranks); }
  // Whether one could begin. More ranks than there may be count as all of them.
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

// Cases of which each is decided when it can begin, by what came of those before.
class CaseSource {
 public:
  CaseSource() = default;
  CaseSource(const CaseSource&) = delete;
  CaseSource& operator=(const CaseSource&) = delete;
  virtual ~CaseSource() = default;

  // The next case, for which there has to be room; nullopt: none before one that runs has ended, and if none runs,
  // none at all.
  virtual std::optional<NamedCase> next(const Room& room) = 0;
  // A case has ended; its event was emitted. Returns events to emit behind it.
  virtual std::vector<Event> ended(const CaseFinished& finished) = 0;
  // The run is stopped, and next() is not called again. What still ends says nothing about the cases.
  virtual void abandoned() = 0;
  // Nothing runs any more, and next() is not called again. Returns the last events before run_finished.
  virtual std::vector<Event> end() = 0;
};

// Runs the cases of the source, on pools that stay warm, until it has no more, or the run is stopped.
RunResult run_source(CaseSource& source, const RunConfig& config, const RunStarted& header, EventSink& sink);

}  // namespace cp_pool
