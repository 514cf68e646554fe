// The messages between driver and worker, protocol version 1 (docs/protocol.md). A request is one JSON object a line on
// rank 0's stdin; a response is one line on rank 0's stdout: kResponsePrefix, then one JSON object.
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

namespace cp_pool::protocol {

inline constexpr int kVersion = 1;
inline constexpr std::string_view kResponsePrefix = "[CP_POOL_RESP] ";
inline constexpr std::string_view kSentinel = kResponsePrefix.substr(0, kResponsePrefix.size() - 1);
inline constexpr std::string_view kFencePrefix = "[CP_POOL_FENCE] ";
inline constexpr std::size_t kMaxLineBytes = std::size_t{16} << 20U;
inline constexpr std::size_t kMaxErrorBytes = std::size_t{16} << 10U;  // of one rank's error text
inline constexpr int kExitNoCommonVersion = 78;
inline constexpr int kExitNoDevice = 69;       // the ranks' device cannot be used at all: nothing of it can run
inline constexpr int kExitTooFewDevices = 77;  // fewer devices than ranks: cases of this world size are skipped

// --- Speed -----------------------------------------------------------------------------------------------------------
struct PerfRequest {                                    // time the step of a case that has been verified
  int warmup = 5;                                       // steps before the timed ones
  int iterations = 20;                                  // timed steps
  bool graph = false;                                   // on GPUs: time replays of a CUDA graph of the step
  std::optional<std::string> trace_dir = std::nullopt;  // trace one more step into files there
};
struct StepMs {
  double median = 0;
  double min = 0;
  double max = 0;
};
struct RankMs {
  int rank = 0;
  StepMs ms;
};
struct PerfResult {
  PerfRequest request;
  StepMs step_ms;                     // forward and backward: of each timed step the slowest rank's time
  std::vector<RankMs> ranks;          // each rank's own
  std::optional<StepMs> one_rank_ms;  // the same problem on rank 0 alone
  std::string one_rank_reason;        // why not
  // In a step by the rank that sends most; none if the worker does not count them.
  std::optional<std::int64_t> bytes_sent = std::nullopt;
};

// --- Requests --------------------------------------------------------------------------------------------------------
struct RunRequest {
  std::int64_t seq = 0;
  std::string id;
  nlohmann::json case_json;
  nlohmann::json lengths = nlohmann::json::object();  // of the case's sequences; empty = not told
  std::int64_t timeout_ms = 90000;
  std::optional<std::string> dump_dir;
  bool reference_cache = true;  // the worker may keep expected results for later cases
  std::optional<PerfRequest> perf = std::nullopt;
};
struct PrepareRequest {
  std::int64_t seq = 0;
  nlohmann::json case_json;
  nlohmann::json lengths = nlohmann::json::object();  // as in RunRequest
};
struct CancelRequest {
  std::int64_t seq = 0;
};
struct PingRequest {
  std::int64_t seq = 0;
  bool all = false;
};
struct ShutdownRequest {};
using Request = std::variant<RunRequest, PrepareRequest, CancelRequest, PingRequest, ShutdownRequest>;

// --- Events ----------------------------------------------------------------------------------------------------------
enum class Outcome { pass, fail, skip, error, timeout, cancelled };  // what a worker may say of a case

struct RankInfo {
  int rank = 0;
  std::string host;
  int pid = 0;
};
struct RankResult {
  int rank = 0;
  bool ok = true;
  bool aborted = false;     // only freed from a collective because another rank failed; error says of which
  std::string error;        // with stack trace; empty if ok
  std::string output_hash;  // empty if the case did not finish on this rank
};
struct TensorCheck {
  std::string tensor;
  int rank = 0;
  double max_abs = 0;
  double rms = 0;
  double error = 0;
  double bound = 0;
  double baseline = 0;
  std::vector<std::int64_t> worst_index;
  bool ok = true;
  std::string message;
  bool measured = true;  // error and bound were told; else they are 0 and mean nothing
};
struct Hygiene {  // of one rank, after a case
  int rank = 0;
  std::int64_t rss_kib = 0;
  std::int64_t fds = 0;
  std::int64_t threads = 0;
  std::int64_t gpu_kib = 0;  // held by the caching allocator; 0 on a CPU
};

struct LostOutput {  // a file that the request asked for and that could not be written; the answer stands all the same
  std::string output;   // "dump" or "trace"
  std::string message;  // one line that names the file and the cause
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
};
// How many GPUs the ranks share, as the worker says in capabilities.shared_gpus; 0: each has a device of its own.
int shared_gpus(const ReadyEvent& ready);

struct StartedEvent {
  std::int64_t seq = 0;
};
struct ProgressEvent {
  std::int64_t seq = 0;
  std::string phase;
};
struct ResultEvent {
  std::int64_t seq = 0;
  Outcome outcome = Outcome::error;
  std::string reason;
  bool healthy = true;
  std::vector<RankResult> ranks;
  std::vector<TensorCheck> checks;
  std::map<std::string, double> timings_ms;
  std::vector<Hygiene> hygiene;
  std::string backend;                            // that ran it; "math" on CPU whatever the case asked for
  std::string backend_note;                       // what of the case another backend computed, and why; else empty
  std::optional<PerfResult> perf = std::nullopt;  // if asked for, and the case passed
  std::vector<LostOutput> lost_outputs;
};
struct PongEvent {
  std::int64_t seq = 0;
  std::vector<int> ranks{0};  // that answered: all of a healthy pool for a ping with all, else rank 0
};
struct ProtocolErrorEvent {
  std::optional<std::int64_t> seq;
  std::string message;
};
struct UnknownEvent {  // a newer worker's: logged, never fatal
  std::string event;
};
using Event =
    std::variant<ReadyEvent, StartedEvent, ProgressEvent, ResultEvent, PongEvent, ProtocolErrorEvent, UnknownEvent>;

std::string_view to_string(Outcome outcome);
std::optional<Outcome> parse_outcome(std::string_view text);

// The JSON of a message on one line, without prefix and newline. Invalid UTF-8 becomes U+FFFD; non-finite numbers
// become the strings "nan", "inf", "-inf".
std::string encode(const Request& request);
std::string encode(const Event& event);
// A response as it is written: newline, prefix, encode(event), newline.
std::string format_response(const Event& event);

// Throw ProtocolError for text that is not such a message. Unknown fields are ignored; fields with a default may be
// missing; invalid UTF-8, and the \u escape of half a surrogate pair, are read as U+FFFD.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  std::optional<std::int64_t> seq;  // if the text had one
};
Request parse_request(std::string_view json);
Event parse_event(std::string_view json);

}  // namespace cp_pool::protocol
