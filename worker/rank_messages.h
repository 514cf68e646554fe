// The messages between the ranks of one worker group over the control plane. Internal to the worker: every rank is the
// same binary, so there is no versioning here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "worker/protocol/messages.h"

namespace cp_pool {

// --- Rank 0 to the computing thread of a rank ------------------------------------------------------------------------
struct RunCommand {
  protocol::RunRequest request;
};
struct BeginCommand {  // every rank has reset its state, and the driver knows that the case has started
  std::int64_t seq = 0;
  bool go = true;  // false: a rank has failed before, or the case was cancelled
};
struct RebuildCommand {
  int generation = 0;  // of the communicators to make
};
// --- Rank 0 to the watching thread of a rank -------------------------------------------------------------------------
struct AbortCommand {
  int generation = 0;  // of the communicators to abort; others are left alone
};
struct ProbeCommand {  // answered at once, also during a case
  std::int64_t token = 0;
};
struct PrepareCommand {  // a hint that this case comes next
  nlohmann::json case_json;
};
// --- Rank 0 to both --------------------------------------------------------------------------------------------------
struct ExitCommand {};

using ComputeCommand = std::variant<RunCommand, BeginCommand, RebuildCommand, ExitCommand>;
using WatchCommand = std::variant<AbortCommand, ProbeCommand, PrepareCommand, ExitCommand>;

// --- A rank to rank 0 ------------------------------------------------------------------------------------------------
struct Hello {
  protocol::RankInfo info;
  std::map<std::string, double> startup_ms;
  std::string data_plane;  // Communicator::description
};
struct CaseReset {  // the state is reset; the rank waits for BeginCommand
  int rank = 0;
  std::int64_t seq = 0;
};
struct CasePhase {
  std::int64_t seq = 0;
  std::string phase;
};

// Ordered by what they explain: an exception explains a peer's timeout, a timeout a lost connection, and so on.
// unsupported: a library refused what the case asks of this rank.
enum class FailureKind { exception, unsupported, timeout, communication, aborted };
enum class FailurePhase { run, barrier };  // barrier: the rank had finished, and its answer stands
struct Failure {
  FailureKind kind = FailureKind::exception;
  FailurePhase phase = FailurePhase::run;
  std::string summary;  // one line
  std::string text;     // with the stack trace of the throw site
};
// Sent at once, before anything slow is done about it.
struct CaseFailing {
  int rank = 0;
  std::int64_t seq = 0;
};

struct RankStepTimes {  // by timed step
  std::vector<double> step_ms;
  std::vector<double> one_rank_ms;  // of rank 0 alone; empty elsewhere, and if it could not be run
  std::string one_rank_reason;      // why not
  std::int64_t bytes_sent = 0;      // by this rank, a step
};
enum class Verdict { pass, fail, skip };
struct RankOutcome {
  int rank = 0;
  std::optional<Verdict> verdict;  // none: the rank did not get that far
  std::string reason;              // of a fail or skip
  std::optional<Failure> failure;
  std::string output_hash;
  std::vector<protocol::TensorCheck> checks;
  std::map<std::string, double> timings_ms;
  protocol::Hygiene hygiene;
  std::string backend;
  std::vector<std::string> remarks;  // RankReport::remarks
  std::optional<RankStepTimes> perf;
  std::vector<protocol::LostOutput> lost_outputs;
};
struct CaseDone {  // the rank is free again
  std::int64_t seq = 0;
  RankOutcome outcome;
};
struct Rebuilt {
  int rank = 0;
  int generation = 0;
  std::string error;  // empty: connected, and an all-reduce over all ranks gave the right sum
};
struct Probed {
  int rank = 0;
  std::int64_t token = 0;
};
struct Goodbye {
  int rank = 0;
};
using RankMessage = std::variant<Hello, CaseReset, CasePhase, CaseFailing, CaseDone, Rebuilt, Probed, Goodbye>;

// Bytes for the store; non-finite numbers and arbitrary bytes in strings survive. decode throws nlohmann::json
// exceptions for anything else than what encode wrote.
using Bytes = std::vector<std::uint8_t>;
Bytes encode(const ComputeCommand& message);
Bytes encode(const WatchCommand& message);
Bytes encode(const RankMessage& message);
ComputeCommand decode_compute_command(const Bytes& bytes);
WatchCommand decode_watch_command(const Bytes& bytes);
RankMessage decode_rank_message(const Bytes& bytes);

}  // namespace cp_pool
