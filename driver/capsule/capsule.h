// A failure in a folder, so that it can be run again elsewhere (docs/verdicts.md#capsules):
//   capsule.json    what is needed for that
//   requests.jsonl  the bytes that were written to rank 0's stdin for its cases
//   result.json     the failure's case_finished
//   rank0.stderr.txt ..
//   dump/           with --dump: what it wrote of the case
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "cases/case.h"
#include "driver/events.h"
#include "driver/verdict.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

struct CapsuleCase {
  std::string id;
  Case c;
  std::optional<double> timeout_ms;  // its own deadline; none: that of the capsule

  static constexpr auto fields() {
    return std::tuple{field("id", &CapsuleCase::id, Presence::required),
                      field("case", &CapsuleCase::c, Presence::required),
                      field("timeout_ms", &CapsuleCase::timeout_ms, Presence::sparse)};
  }
};

struct Capsule {
  int capsule = 1;      // version of this format
  std::string version;  // of cp-pool
  std::string id;       // of the case that failed
  CaseOutcome outcome = CaseOutcome::fail;
  std::string reason;
  std::string rerun;  // the command that reruns the case alone
  std::optional<Verdict> verdict;
  std::vector<std::string> worker;       // argv
  std::vector<std::string> fork_server;  // argv; empty: none
  std::string folder;                    // in which they were started
  std::vector<std::string> environment;  // "NAME=VALUE"
  std::string device;
  bool share_gpus = true;
  double timeout_ms = 90000;
  double start_timeout_ms = 60000;
  std::optional<double> bound_factor;
  bool reference_cache = true;
  std::optional<protocol::PerfRequest> perf;
  std::string worker_name;         // as it said
  nlohmann::json versions;         // likewise
  std::size_t left_out = 0;        // cases of the history, of its beginning, that are not kept
  std::vector<CapsuleCase> cases;  // in the order in which the pool got them; the last is the one that failed

  static constexpr auto fields() {
    return std::tuple{field("capsule", &Capsule::capsule, Presence::required),
                      field("version", &Capsule::version),
                      field("id", &Capsule::id, Presence::required),
                      field("outcome", &Capsule::outcome, Presence::required),
                      field("reason", &Capsule::reason),
                      field("rerun", &Capsule::rerun),
                      field("verdict", &Capsule::verdict, Presence::sparse),
                      field("worker", &Capsule::worker, Presence::required),
                      field("fork_server", &Capsule::fork_server),
                      field("folder", &Capsule::folder),
                      field("environment", &Capsule::environment),
                      field("device", &Capsule::device, Presence::required),
                      field("share_gpus", &Capsule::share_gpus),
                      field("timeout_ms", &Capsule::timeout_ms),
                      field("start_timeout_ms", &Capsule::start_timeout_ms),
                      field("bound_factor", &Capsule::bound_factor, Presence::sparse),
                      field("reference_cache", &Capsule::reference_cache),
                      field("perf", &Capsule::perf, Presence::sparse),
                      field("worker_name", &Capsule::worker_name),
                      field("versions", &Capsule::versions),
                      field("left_out", &Capsule::left_out, Presence::sparse),
                      field("cases", &Capsule::cases, Presence::required)};
  }
};

// What stands beside capsule.json.
struct CapsuleFiles {
  std::string requests;
  const CaseFinished* result = nullptr;
  std::optional<std::filesystem::path> dump_dir;  // where the worker has written its dumps
};

// The folder is made, and what it holds of an earlier capsule replaced. Throws std::runtime_error, which names the file
// and the cause.
void write_capsule(const std::filesystem::path& folder, const Capsule& capsule, const CapsuleFiles& files);

// folder: or its capsule.json. Throws CaseError, which names file, field and value.
Capsule read_capsule(const std::filesystem::path& folder);

}  // namespace cp_pool
