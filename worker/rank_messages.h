// The messages between the ranks of one worker group over the control plane. They are internal to the worker: every
// rank runs the same binary, so the messages have no versions.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cases/case_outcome.h"
#include "cases/case_report.h"
#include "cases/diagnosis.h"
#include "cases/fields.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// --- Rank 0 to the computing thread of a rank ------------------------------------------------------------------------
using RunCommand = protocol::RunRequest;  // without lengths: each rank computes them from the case
struct BeginCommand {  // every rank has reset its state, and the driver knows that the case has started
  std::int64_t seq = 0;
  bool go = true;             // false: a rank has failed before, or the case was cancelled
  bool renew_groups = false;  // a rank has lost its groups

  static constexpr auto fields() {
    return FieldList{optional<&BeginCommand::seq, &BeginCommand::go, &BeginCommand::renew_groups>()};
  }
};
struct LeaveCommand {  // every rank has reached the end of the case or of its diagnosis
  std::int64_t seq = 0;
  bool go = true;          // false: a rank has failed before, or the case was cancelled
  std::string difference;  // which ranks have begun different operations; empty if all have begun the same

  static constexpr auto fields() {
    return FieldList{optional<&LeaveCommand::seq, &LeaveCommand::go, &LeaveCommand::difference>()};
  }
};
struct DiagnoseCommand {  // asks for a diagnosis of the failed case whose result has been sent
  std::int64_t seq = 0;
  std::int64_t limit_ms = 0;

  static constexpr auto fields() { return FieldList{optional<&DiagnoseCommand::seq, &DiagnoseCommand::limit_ms>()}; }
};
struct RebuildCommand {
  int generation = 0;  // generation of the communicators to make

  static constexpr auto fields() { return FieldList{optional<&RebuildCommand::generation>()}; }
};
// --- Rank 0 to the watching thread of a rank -------------------------------------------------------------------------
struct AbortCommand {
  int generation = 0;  // generation of the communicators to abort; others are left alone

  static constexpr auto fields() { return FieldList{optional<&AbortCommand::generation>()}; }
};
struct ProbeCommand {  // answered at once, also during a case
  std::int64_t token = 0;

  static constexpr auto fields() { return FieldList{optional<&ProbeCommand::token>()}; }
};
using PrepareCommand = protocol::PrepareRequest;
// --- Rank 0 to both --------------------------------------------------------------------------------------------------
struct ExitCommand {
  static constexpr auto fields() { return FieldList{}; }
};

using ComputeCommand =
    std::variant<RunCommand, BeginCommand, LeaveCommand, DiagnoseCommand, RebuildCommand, ExitCommand>;
using ControlCommand = std::variant<AbortCommand, ProbeCommand, PrepareCommand, ExitCommand>;

// --- A rank to rank 0 ------------------------------------------------------------------------------------------------
struct RankStarted {
  protocol::RankInfo info;
  std::map<std::string, double> startup_ms;
  std::string data_plane;  // Communicator::description

  static constexpr auto fields() {
    return FieldList{optional<&RankStarted::info, &RankStarted::startup_ms, &RankStarted::data_plane>()};
  }
};
struct CaseReset {  // the rank has reset its state and waits for BeginCommand
  int rank = 0;
  std::int64_t seq = 0;
  bool lost_groups = false;  // CaseRunner::lost_groups

  static constexpr auto fields() {
    return FieldList{optional<&CaseReset::rank, &CaseReset::seq, &CaseReset::lost_groups>()};
  }
};
struct CasePhase {
  std::int64_t seq = 0;
  std::string phase;  // cases/case_phases.h

  static constexpr auto fields() { return FieldList{optional<&CasePhase::seq, &CasePhase::phase>()}; }
};

struct CaseArrived {  // the rank is at the end of the case or of its diagnosis, and waits for LeaveCommand
  int rank = 0;
  std::int64_t seq = 0;
  std::vector<BegunInGroup> begun;  // Communicator::begun
  std::string declined = {};        // Declined::place if the rank has declined the case; empty if it has run it

  static constexpr auto fields() {
    return FieldList{optional<&CaseArrived::rank, &CaseArrived::seq, &CaseArrived::begun>(),
                     sparse<&CaseArrived::declined>()};
  }
};

// In the order of explanation: an exception explains a peer's timeout, a timeout a lost connection, and so on.
// assertion: the function of a call says that the code that it tests is wrong. unsupported: a library refused the case
// on this rank.
enum class FailureKind { assertion, exception, unsupported, timeout, communication, aborted };
// python/cp_pool/errors.py uses the same names.
template <>
inline constexpr auto kNames<FailureKind> = kSpelledNames<FailureKind::aborted>;
enum class FailurePhase {
  run,
  judge,    // the code under test had returned, and the rank computed expected results or compared
  barrier,  // the rank had finished, and its answer stays valid
};
struct Failure {
  FailureKind kind = FailureKind::exception;
  FailurePhase phase = FailurePhase::run;
  std::string summary;  // one line
  std::string text;     // with the stack trace of the throw site
  // The function of a library in which the code under test waited for other ranks; empty if it is not known.
  std::string collective = {};

  static constexpr auto fields() {
    return FieldList{optional<&Failure::kind, &Failure::phase, &Failure::summary, &Failure::text>(),
                     sparse<&Failure::collective>()};
  }
};
// Sent at once when a rank fails, before the rank does anything slow about the failure.
struct CaseFailing {
  std::int64_t seq = 0;

  static constexpr auto fields() { return FieldList{optional<&CaseFailing::seq>()}; }
};

// An operation that the code under test has begun on a group of ranks.
struct GroupOperation {
  std::string name;          // "all_gather"; "send" and "recv" are between two ranks
  std::string group;         // name of the group
  std::vector<int> members;  // ranks of the group
  int peer = -1;             // the other rank, or the root of a collective that has one; -1: none
  std::string tensor;        // "float32 [4, 16]": what this rank gives, or receives if it gives nothing
  std::int64_t bytes = 0;    // of all tensors that it gives, or receives

  static constexpr auto fields() {
    return FieldList{optional<&GroupOperation::name, &GroupOperation::group, &GroupOperation::members,
                              &GroupOperation::peer, &GroupOperation::tensor, &GroupOperation::bytes>()};
  }
};

// What the code under test has begun on groups of its own since the case began.
struct GroupHistory {
  int rank = 0;
  std::vector<GroupOperation> begun;  // in this order
  bool left = false;                  // the code under test has returned
  bool idle = false;                  // the rank has no tokens of the case

  static constexpr auto fields() {
    return FieldList{optional<&GroupHistory::rank, &GroupHistory::begun, &GroupHistory::left, &GroupHistory::idle>()};
  }
};

struct RankOutcome : CaseReport {
  int rank = 0;
  std::optional<CaseOutcome> verdict;  // pass, fail or skip; unset if the rank did not come to a verdict
  std::optional<Failure> failure;
  protocol::Hygiene hygiene;
  std::string backend;
  bool can_diagnose = false;            // the rank has kept the data that a diagnosis needs
  bool declined = false;                // the rank has declined the case, and the failure is that others have not
  protocol::AnyJson value;              // what the function of a call has returned
  std::optional<GroupHistory> history;  // of a rank with a failure, if it is known

  static constexpr auto fields() {
    return FieldList{optional<&RankOutcome::rank>(), sparse<&RankOutcome::verdict, &RankOutcome::failure>(),
                     optional<&RankOutcome::hygiene>(),
                     sparse<&RankOutcome::backend, &RankOutcome::can_diagnose, &RankOutcome::declined,
                            &RankOutcome::value, &RankOutcome::history>()} +
           CaseReport::fields();
  }
};
struct CaseDone {  // the rank has finished the case and is free
  std::int64_t seq = 0;
  RankOutcome outcome;

  static constexpr auto fields() { return FieldList{optional<&CaseDone::seq, &CaseDone::outcome>()}; }
};
struct DiagnosisDone {  // the rank has finished the diagnosis and is free
  std::int64_t seq = 0;
  RankOutcome outcome;  // only rank and failure are set
  std::optional<Diagnosis>
      diagnosis;  // from the first rank of each group, unless it failed before the barrier that follows

  static constexpr auto fields() {
    return FieldList{optional<&DiagnosisDone::seq, &DiagnosisDone::outcome>(), sparse<&DiagnosisDone::diagnosis>()};
  }
};
struct Rebuilt {
  int rank = 0;
  int generation = 0;
  std::string error;      // empty if the rank is connected, and an all-reduce over all ranks gave the right sum
  bool declined = false;  // CaseRunner::reconnect_obstacle gave a reason; this is no further failure

  static constexpr auto fields() {
    return FieldList{optional<&Rebuilt::rank, &Rebuilt::generation, &Rebuilt::error, &Rebuilt::declined>()};
  }
};
struct Probed {
  std::int64_t token = 0;
  protocol::RankPhase where;  // the rank and its phase
  std::optional<GroupHistory> history = {};

  static constexpr auto fields() {
    return FieldList{optional<&Probed::token, &Probed::where>(), sparse<&Probed::history>()};
  }
};
struct Goodbye {
  static constexpr auto fields() { return FieldList{}; }
};
using RankMessage = std::variant<RankStarted, CaseReset, CasePhase, CaseArrived, CaseFailing, CaseDone, DiagnosisDone,
                                 Rebuilt, Probed, Goodbye>;

using Bytes = std::vector<std::uint8_t>;
// Encode a message as bytes; non-finite numbers and arbitrary bytes in strings survive. Decoding anything that encode
// has not written throws protocol::ProtocolError or nlohmann::json's exceptions.
// Message: ComputeCommand, ControlCommand or RankMessage.
template <typename Message>
Bytes encode(const Message& message);
template <typename Message>
Message decode(const Bytes& bytes);

}  // namespace cp_pool
