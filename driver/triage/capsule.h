// A capsule is a folder that holds a failure, so that it can be run again elsewhere (docs/verdicts.md#capsules):
//   capsule.json    what is needed to run it again
//   requests.jsonl  the bytes that were written to rank 0's stdin for its cases
//   result.json     the case_finished event of the failure
//   rank0.stderr.txt ..
//   dump/           with --dump: the dumps of the failed case
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "driver/core/events.h"
#include "driver/core/payload.h"
#include "driver/core/run.h"
#include "driver/triage/pool_history.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

struct CapsuleCase {
  std::string id;
  Payload payload;
  std::optional<std::chrono::milliseconds> timeout = {};  // deadline of the case; none: Capsule::timeout

  static constexpr auto fields() {
    return FieldList{required<&CapsuleCase::id>(), field("case", &CapsuleCase::payload, Presence::required),
                     field("timeout_ms", &CapsuleCase::timeout, Presence::sparse)};
  }
};

// Of the settings of the run, those that fields() lists.
struct Capsule : RunSettings {
  int capsule = 1;      // version of this format
  std::string version;  // version of cp-pool
  std::string id;       // ID of the case that failed
  CaseOutcome outcome = CaseOutcome::fail;
  std::string reason;
  std::string rerun;  // command that reruns the case alone
  std::optional<Verdict> verdict;
  std::string folder;                    // working directory of the ranks
  std::vector<std::string> environment;  // "NAME=VALUE"
  std::optional<protocol::PerfRequest> perf;
  std::string worker_name;         // as in the worker's ready event
  nlohmann::json versions;         // as in the worker's ready event
  std::size_t left_out = 0;        // number of cases at the beginning of the pool's history that are not kept
  std::vector<CapsuleCase> cases;  // in the order in which the pool got them; the last is the one that failed

  static constexpr auto fields() {
    return FieldList{required<&Capsule::capsule>(),
                     optional<&Capsule::version>(),
                     required<&Capsule::id, &Capsule::outcome>(),
                     optional<&Capsule::reason, &Capsule::rerun>(),
                     sparse<&Capsule::verdict>(),
                     field("worker", &Capsule::worker_command, Presence::required),
                     sparse<&Capsule::implementation>(),
                     optional<&Capsule::fork_server, &Capsule::folder, &Capsule::environment>(),
                     required<&Capsule::device>(),
                     optional<&Capsule::share_gpus>(),
                     field("timeout_ms", &Capsule::timeout),
                     field("start_timeout_ms", &Capsule::start_timeout),
                     sparse<&Capsule::bound_factor>(),
                     optional<&Capsule::reference_cache>(),
                     sparse<&Capsule::perf>(),
                     optional<&Capsule::worker_name, &Capsule::versions>(),
                     sparse<&Capsule::left_out>(),
                     required<&Capsule::cases>()};
  }
};

// Creates the folder and replaces the files of an earlier capsule in it. requests: the contents of requests.jsonl.
// result: of the failure. dump_dir: folder of the worker's dumps; those of the case are copied. Throws
// std::runtime_error, which names the file and the cause.
void write_capsule(const std::filesystem::path& folder, const Capsule& capsule, std::string_view requests,
                   const CaseFinished& result, const std::optional<std::filesystem::path>& dump_dir = std::nullopt);

// Reads a capsule from its folder or from its capsule.json. Throws CaseError, which names file, field and value.
Capsule read_capsule(const std::filesystem::path& folder);

// Writes the capsule of the failure into its folder in config.capsules, which must be set. Without a verdict it has all
// cases that its pool got before; with one, only those that the verdict shows to be needed. A later capsule of the
// failure replaces an earlier one. Throws std::runtime_error, which names the file and the cause.
void write_failure_capsule(const RunConfig& config, const PoolHistory& history, const HistoryOfFailure& failure,
                           const Verdict* verdict = nullptr);

}  // namespace cp_pool
