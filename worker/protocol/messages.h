// The messages between driver and worker, protocol version 1 (docs/protocol.md). A request is one JSON object per line
// on rank 0's stdin. A response is one line on rank 0's stdout: kResponsePrefix, then one JSON object. Each message's
// fields() is the only place that lists its fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "cases/case_outcome.h"
#include "cases/case_report.h"
#include "cases/diagnosis.h"
#include "cases/fields.h"
#include "worker/protocol/json_fields.h"

namespace cp_pool::protocol {

inline constexpr int kVersion = 1;
inline constexpr std::string_view kResponsePrefix = "[CP_POOL_RESP] ";
inline constexpr std::string_view kSentinel = kResponsePrefix.substr(0, kResponsePrefix.size() - 1);
inline constexpr std::string_view kFencePrefix = "[CP_POOL_FENCE] ";
inline constexpr std::size_t kMaxLineBytes = std::size_t{16} << 20U;
inline constexpr std::size_t kMaxErrorBytes = std::size_t{16} << 10U;  // of one rank's error text, in bytes
// Exit codes of a rank, and of what starts it.
inline constexpr int kExitNoCommonVersion = 78;
inline constexpr int kExitNoDevice = 69;          // the ranks' device cannot be used at all, so no case can run on it
inline constexpr int kExitTooFewDevices = 77;     // fewer devices than ranks: cases of this world size are skipped
inline constexpr int kExitWithoutDriver = 75;     // of a rank that a launcher started: it has lost the driver
inline constexpr int kExitCommandNotFound = 127;  // of a shell, env or a launcher

// --- Speed -----------------------------------------------------------------------------------------------------------
struct PerfRequest {                                    // asks to time the step of a case after it has been verified
  int warmup = 5;                                       // steps before the timed ones
  int iterations = 20;                                  // timed steps
  bool graph = false;                                   // on GPUs: time replays of a CUDA graph of the step
  std::optional<std::string> trace_dir = std::nullopt;  // folder for traces of one more step

  static constexpr auto fields() {
    return FieldList{optional<&PerfRequest::warmup, &PerfRequest::iterations, &PerfRequest::graph>(),
                     sparse<&PerfRequest::trace_dir>()};
  }
};
struct RankMs {
  int rank = 0;
  StepMs ms;

  static constexpr auto fields() { return FieldList{required<&RankMs::rank, &RankMs::ms>()}; }
};
struct PerfResult : StepMeasurements {  // with the measurements of all ranks
  PerfRequest request;
  StepMs step_ms;             // forward and backward: the slowest rank's time of each timed step
  std::vector<RankMs> ranks;  // times of each rank

  static constexpr auto fields() {
    return FieldList{field("warmup", [](auto& perf) -> auto& { return perf.request.warmup; }),
                     field("iterations", [](auto& perf) -> auto& { return perf.request.iterations; }),
                     field("graph", [](auto& perf) -> auto& { return perf.request.graph; }),
                     required<&PerfResult::step_ms>(), optional<&PerfResult::ranks>()} +
           StepMeasurements::fields();
  }
};

// --- Requests: op and fields -----------------------------------------------------------------------------------------
struct RunOfCase {  // how a case is run
  std::optional<std::string> dump_dir = {};
  bool reference_cache = true;  // the worker may keep expected results for later cases
  std::optional<PerfRequest> perf = std::nullopt;
  // Multiplies every bound; unset = 1. For workers with "bound_factor" in capabilities.options.
  std::optional<double> bound_factor = std::nullopt;
  // Milliseconds that a diagnosis of a fail may take; unset = no diagnosis. For workers with "diagnosis_ms" in
  // capabilities.options.
  std::optional<std::int64_t> diagnosis_ms = std::nullopt;
  // What diagnoses of earlier cases of the run have found, for a diagnosis of this one. For workers with
  // "known_mistakes" in capabilities.options.
  std::vector<KnownMistake> known_mistakes = {};

  static constexpr auto fields() {
    return FieldList{
        optional<&RunOfCase::dump_dir, &RunOfCase::reference_cache>(),
        sparse<&RunOfCase::perf, &RunOfCase::bound_factor, &RunOfCase::diagnosis_ms, &RunOfCase::known_mistakes>()};
  }
};
struct RunRequest {
  std::int64_t seq = 0;
  std::string id;
  nlohmann::json case_json;  // null if it is a call
  nlohmann::json call;       // {"function": .., "arguments": {..}} instead of a case; else null
  nlohmann::json lengths = nlohmann::json::object();  // lengths of the case's sequences; empty = not given
  std::int64_t timeout_ms = 90000;
  RunOfCase options = {};

  static constexpr const char* kName = "run";
  static constexpr auto fields() {
    return FieldList{required<&RunRequest::seq>(), optional<&RunRequest::id>(),
                     field("case", &RunRequest::case_json, Presence::sparse),
                     sparse<&RunRequest::call, &RunRequest::lengths>(),
                     optional<&RunRequest::timeout_ms, &RunRequest::options>()};
  }
};
struct PrepareRequest {
  std::int64_t seq = 0;
  nlohmann::json case_json;
  nlohmann::json lengths = nlohmann::json::object();  // as in RunRequest

  static constexpr const char* kName = "prepare";
  static constexpr auto fields() {
    return FieldList{optional<&PrepareRequest::seq>(), field("case", &PrepareRequest::case_json, Presence::required),
                     sparse<&PrepareRequest::lengths>()};
  }
};
struct CancelRequest {
  std::int64_t seq = 0;

  static constexpr const char* kName = "cancel";
  static constexpr auto fields() { return FieldList{required<&CancelRequest::seq>()}; }
};
struct PingRequest {
  std::int64_t seq = 0;
  bool all = false;

  static constexpr const char* kName = "ping";
  static constexpr auto fields() { return FieldList{required<&PingRequest::seq>(), sparse<&PingRequest::all>()}; }
};
struct ShutdownRequest {
  static constexpr const char* kName = "shutdown";
  static constexpr auto fields() { return FieldList{}; }
};
using Request = std::variant<RunRequest, PrepareRequest, CancelRequest, PingRequest, ShutdownRequest>;

// --- Events: event and fields ----------------------------------------------------------------------------------------
struct RankInfo {
  int rank = 0;
  std::string host;
  int pid = 0;

  static constexpr auto fields() {
    return FieldList{required<&RankInfo::rank>(), optional<&RankInfo::host, &RankInfo::pid>()};
  }
};
struct RankResult : RankMeasurements {  // timings_ms: rounded to microseconds
  int rank = 0;
  bool ok = true;
  bool aborted = false;    // the rank failed only because another rank failed; error names its collective
  std::string error = {};  // with a stack trace, at most kMaxErrorBytes; empty if ok

  static constexpr auto fields() {
    return FieldList{required<&RankResult::rank, &RankResult::ok>(),
                     field("aborted", &RankResult::aborted, Presence::message), optional<&RankResult::error>()} +
           RankMeasurements::fields();
  }
};
struct Hygiene {  // of one rank, after a case
  int rank = 0;
  std::int64_t rss_kib = 0;
  std::int64_t fds = 0;
  std::int64_t threads = 0;
  std::int64_t gpu_kib = 0;  // memory held by the caching allocator; 0 on a CPU

  static constexpr auto fields() {
    return FieldList{required<&Hygiene::rank>(),
                     optional<&Hygiene::rss_kib, &Hygiene::fds, &Hygiene::threads, &Hygiene::gpu_kib>()};
  }
};

struct ReadyEvent {
  int protocol = kVersion;
  std::string worker;  // name and version
  int world_size = 1;
  std::string device;
  std::vector<RankInfo> ranks;
  nlohmann::json capabilities = nlohmann::json::object();
  nlohmann::json versions = nlohmann::json::object();
  std::map<std::string, double> startup_ms;

  static constexpr const char* kName = "ready";
  static constexpr auto fields() {
    return FieldList{optional<&ReadyEvent::worker>(), required<&ReadyEvent::protocol, &ReadyEvent::world_size>(),
                     optional<&ReadyEvent::device, &ReadyEvent::ranks, &ReadyEvent::capabilities, &ReadyEvent::versions,
                              &ReadyEvent::startup_ms>()};
  }
};
// Returns how many GPUs the ranks share, from the worker's capabilities.shared_gpus; 0: each rank has a device of its
// own.
int shared_gpus(const ReadyEvent& ready);

struct StartedEvent {
  std::int64_t seq = 0;

  static constexpr const char* kName = "started";
  static constexpr auto fields() { return FieldList{required<&StartedEvent::seq>()}; }
};
struct ProgressEvent {
  std::int64_t seq = 0;
  std::string phase;

  static constexpr const char* kName = "progress";
  static constexpr auto fields() {
    return FieldList{required<&ProgressEvent::seq>(), optional<&ProgressEvent::phase>()};
  }
};
struct ResultEvent {
  std::int64_t seq = 0;
  CaseOutcome outcome = CaseOutcome::error;  // an outcome that a worker may report
  std::string reason;
  bool healthy = true;
  std::vector<RankResult> ranks;
  std::vector<Check> checks;
  std::map<std::string, double> timings_ms;
  std::vector<Hygiene> hygiene;
  std::string backend;       // the backend that ran the case; on a CPU always "math"
  std::string backend_note;  // which parts of the case another backend computed, and why; else empty
  std::optional<PerfResult> perf = std::nullopt;  // set if requested, and the case passed
  // The factor by which every bound of the checks has been multiplied; unset = 1.
  std::optional<double> bound_factor = std::nullopt;
  std::vector<LostOutput> lost_outputs;
  bool diagnosing = false;  // a diagnosis of this fail follows
  AnyJson value;            // what the function of a call has returned on rank 0; null: nothing

  static constexpr const char* kName = "result";
  static constexpr auto fields() {
    return FieldList{required<&ResultEvent::seq, &ResultEvent::outcome>(),
                     optional<&ResultEvent::reason, &ResultEvent::healthy, &ResultEvent::ranks, &ResultEvent::checks,
                              &ResultEvent::timings_ms, &ResultEvent::hygiene, &ResultEvent::backend>(),
                     sparse<&ResultEvent::backend_note, &ResultEvent::perf, &ResultEvent::bound_factor,
                            &ResultEvent::lost_outputs, &ResultEvent::diagnosing, &ResultEvent::value>()};
  }
};
struct DiagnosisEvent {  // follows a result with `diagnosing`
  std::int64_t seq = 0;
  bool healthy = true;  // as in ResultEvent
  Diagnosis diagnosis = {};

  static constexpr const char* kName = "diagnosis";
  static constexpr auto fields() {
    return FieldList{required<&DiagnosisEvent::seq>(), optional<&DiagnosisEvent::healthy>(),
                     required<&DiagnosisEvent::diagnosis>()};
  }
};
struct RankPhase {  // a rank's phase and operation
  int rank = 0;
  std::string phase;
  double ms = 0;            // milliseconds since the rank entered the phase
  std::string operation;    // the communication that the rank waits in; empty: none
  double operation_ms = 0;  // milliseconds since the operation began

  static constexpr auto fields() {
    return FieldList{required<&RankPhase::rank, &RankPhase::phase>(), optional<&RankPhase::ms>(),
                     sparse<&RankPhase::operation, &RankPhase::operation_ms>()};
  }
};
struct PongEvent {
  std::int64_t seq = 0;
  std::vector<int> ranks{0};  // ranks that answered: all ranks of a healthy pool for a ping with `all`, else rank 0
  std::vector<RankPhase> phases = {};  // phases of these ranks, if the worker reports them: for a ping with `all`
  std::string difference = {};         // how these ranks differ in the communication that they have begun, in words

  static constexpr const char* kName = "pong";
  static constexpr auto fields() {
    return FieldList{required<&PongEvent::seq>(), optional<&PongEvent::ranks>(),
                     sparse<&PongEvent::phases, &PongEvent::difference>()};
  }
};
struct ProtocolErrorEvent {
  std::optional<std::int64_t> seq;
  std::string message;

  static constexpr const char* kName = "protocol_error";
  static constexpr auto fields() {
    return FieldList{optional<&ProtocolErrorEvent::seq, &ProtocolErrorEvent::message>()};
  }
};
struct UnknownEvent {  // an event of a newer worker: logged, never fatal
  std::string event;
};
using Event = std::variant<ReadyEvent, StartedEvent, ProgressEvent, ResultEvent, DiagnosisEvent, PongEvent,
                           ProtocolErrorEvent, UnknownEvent>;

// Return the JSON of a message on one line, without prefix and newline. Invalid UTF-8 becomes U+FFFD; non-finite
// numbers become the strings "nan", "inf", "-inf".
std::string encode(const Request& request);
std::string encode(const Event& event);
// Returns a response as it is written: newline, prefix, encode(event), newline.
std::string format_response(const Event& event);

// The error of text that is not a valid message. The parse functions below ignore unknown fields, accept missing fields
// that have a default, and read invalid UTF-8 and a \u escape of half a surrogate pair as U+FFFD.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  std::optional<std::int64_t> seq;  // the text's seq, if it has one
};
// Throw ProtocolError for values that have the right type but are impossible.
void expect_valid(const PerfRequest& request);
void expect_valid(const StepMs& times);
void expect_valid(const PerfResult& perf);
void expect_valid(const RunOfCase& options);
void expect_valid(const RunRequest& request);
void expect_valid(const ResultEvent& result);
Request parse_request(std::string_view json);
// A worker's texts enter the driver here, so every text of the event is cleaned (text_clean.h).
Event parse_event(std::string_view json);

}  // namespace cp_pool::protocol
