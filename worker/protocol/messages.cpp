#include "worker/protocol/messages.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "worker/protocol/json_fields.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool::protocol {

namespace {

using nlohmann::json;

constexpr std::array<std::pair<Outcome, std::string_view>, 6> kOutcomes{{
    {Outcome::pass, "pass"},
    {Outcome::fail, "fail"},
    {Outcome::skip, "skip"},
    {Outcome::error, "error"},
    {Outcome::timeout, "timeout"},
    {Outcome::cancelled, "cancelled"},
}};

// --- To JSON ---------------------------------------------------------------------------------------------------------
json to_json(const PerfRequest& m) {
  json out{{"warmup", m.warmup}, {"iterations", m.iterations}, {"graph", m.graph}};
  if (m.trace_dir) out["trace_dir"] = *m.trace_dir;
  return out;
}
json to_json(const RunRequest& m) {
  json out{{"op", "run"},
           {"seq", m.seq},
           {"id", m.id},
           {"case", m.case_json},
           {"timeout_ms", m.timeout_ms},
           {"options",
            {{"dump_dir", m.dump_dir ? json(*m.dump_dir) : json(nullptr)}, {"reference_cache", m.reference_cache}}}};
  if (!m.lengths.empty()) out["lengths"] = m.lengths;
  if (m.perf) out["options"]["perf"] = to_json(*m.perf);
  return out;
}
json to_json(const PrepareRequest& m) {
  json out{{"op", "prepare"}, {"seq", m.seq}, {"case", m.case_json}};
  if (!m.lengths.empty()) out["lengths"] = m.lengths;
  return out;
}
json to_json(const CancelRequest& m) {
  return {{"op", "cancel"}, {"seq", m.seq}};
}
json to_json(const PingRequest& m) {
  json out{{"op", "ping"}, {"seq", m.seq}};
  if (m.all) out["all"] = true;
  return out;
}
json to_json(const ShutdownRequest&) {
  return {{"op", "shutdown"}};
}

json to_json(const RankInfo& m) {
  return {{"rank", m.rank}, {"host", m.host}, {"pid", m.pid}};
}
json to_json(const RankResult& m) {
  return {{"rank", m.rank},
          {"ok", m.ok},
          {"aborted", m.aborted},
          {"error", cut_text(m.error, kMaxErrorBytes)},
          {"output_hash", m.output_hash}};
}
json to_json(const TensorCheck& m) {
  json out{{"tensor", m.tensor},     {"rank", m.rank}, {"max_abs", m.max_abs}, {"rms", m.rms},
           {"baseline", m.baseline}, {"ok", m.ok},     {"message", m.message}, {"worst_index", m.worst_index}};
  if (m.measured) out.update({{"error", m.error}, {"bound", m.bound}});
  return out;
}
json to_json(const Hygiene& m) {
  return {{"rank", m.rank}, {"rss_kib", m.rss_kib}, {"fds", m.fds}, {"threads", m.threads}, {"gpu_kib", m.gpu_kib}};
}
json to_json(const LostOutput& m) {
  return {{"output", m.output}, {"message", m.message}};
}
json to_json(const StepMs& m) {
  return {{"median", m.median}, {"min", m.min}, {"max", m.max}};
}
json to_json(const RankMs& m) {
  return {{"rank", m.rank}, {"ms", to_json(m.ms)}};
}
template <typename T>
json to_json(const std::vector<T>& items) {
  json out = json::array();
  for (const T& item : items) out.push_back(to_json(item));
  return out;
}

json to_json(const ReadyEvent& m) {
  return {{"event", "ready"},          {"protocol", m.protocol},
          {"worker", m.worker},        {"world_size", m.world_size},
          {"device", m.device},        {"ranks", to_json(m.ranks)},
          {"versions", m.versions},    {"capabilities", m.capabilities},
          {"startup_ms", m.startup_ms}};
}
json to_json(const StartedEvent& m) {
  return {{"event", "started"}, {"seq", m.seq}};
}
json to_json(const ProgressEvent& m) {
  return {{"event", "progress"}, {"seq", m.seq}, {"phase", m.phase}};
}
json to_json(const PerfResult& m) {
  json out{{"warmup", m.request.warmup},
           {"iterations", m.request.iterations},
           {"graph", m.request.graph},
           {"step_ms", to_json(m.step_ms)},
           {"ranks", to_json(m.ranks)},
           {"one_rank_ms", m.one_rank_ms ? to_json(*m.one_rank_ms) : json(nullptr)},
           {"one_rank_reason", m.one_rank_reason}};
  if (m.bytes_sent) out["bytes_sent"] = *m.bytes_sent;
  return out;
}
json to_json(const ResultEvent& m) {
  json out{{"event", "result"},
           {"seq", m.seq},
           {"outcome", to_string(m.outcome)},
           {"reason", m.reason},
           {"healthy", m.healthy},
           {"ranks", to_json(m.ranks)},
           {"checks", to_json(m.checks)},
           {"timings_ms", m.timings_ms},
           {"hygiene", to_json(m.hygiene)},
           {"backend", m.backend}};
  if (!m.backend_note.empty()) out["backend_note"] = m.backend_note;
  if (m.perf) out["perf"] = to_json(*m.perf);
  if (!m.lost_outputs.empty()) out["lost_outputs"] = to_json(m.lost_outputs);
  return out;
}
json to_json(const PongEvent& m) {
  return {{"event", "pong"}, {"seq", m.seq}, {"ranks", m.ranks}};
}
json to_json(const ProtocolErrorEvent& m) {
  return {{"event", "protocol_error"}, {"seq", m.seq ? json(*m.seq) : json(nullptr)}, {"message", m.message}};
}
json to_json(const UnknownEvent& m) {
  return {{"event", m.event}};
}

std::string dump(json message) {
  make_numbers_finite(message);
  return message.dump(-1, ' ', false, json::error_handler_t::replace);
}

// --- From JSON -------------------------------------------------------------------------------------------------------
RankInfo read_rank_info(const Fields& f) {
  return {f.get_int("rank"), f.get_string("host", ""), f.get_int("pid", 0)};
}
RankResult read_rank_result(const Fields& f) {
  return {f.get_int("rank"), f.get_bool("ok"), f.get_bool("aborted", false), f.get_string("error", ""),
          f.get_string("output_hash", "")};
}
TensorCheck read_check(const Fields& f) {
  return {.tensor = f.get_string("tensor"),
          .rank = f.get_int("rank"),
          .max_abs = f.get_double("max_abs", 0),
          .rms = f.get_double("rms", 0),
          .error = f.get_double("error", 0),
          .bound = f.get_double("bound", 0),
          .baseline = f.get_double("baseline", 0),
          .worst_index = f.get_int64s("worst_index"),
          .ok = f.get_bool("ok"),
          .message = f.get_string("message", ""),
          .measured = f.has("error") && f.has("bound")};
}
Hygiene read_hygiene(const Fields& f) {
  return {f.get_int("rank"), f.get_int64("rss_kib", 0), f.get_int64("fds", 0), f.get_int64("threads", 0),
          f.get_int64("gpu_kib", 0)};
}
LostOutput read_lost_output(const Fields& f) {
  return {f.get_string("output", ""), f.get_string("message")};
}
template <typename Read>
auto read_list(const Fields& f, const char* name, Read read) {
  std::vector<std::invoke_result_t<Read, const Fields&>> out;
  for (const json& item : f.get_array(name)) out.push_back(read(Fields(item, name)));
  return out;
}

StepMs read_step_ms(const Fields& f) {
  const auto time = [&f](const char* name) {
    const double ms = f.get_double(name, 0);
    if (!std::isfinite(ms) || ms < 0) throw ProtocolError(fmt::format("perf: {} {} is no time in ms", name, ms));
    return ms;
  };
  return {time("median"), time("min"), time("max")};
}
RankMs read_rank_ms(const Fields& f) {
  const json ms = f.require_object("ms");
  return {f.get_int("rank"), read_step_ms(Fields(ms, "ms"))};
}
PerfRequest read_perf_request(const Fields& f) {
  const PerfRequest out{.warmup = f.get_int("warmup", PerfRequest{}.warmup),
                        .iterations = f.get_int("iterations", PerfRequest{}.iterations),
                        .graph = f.get_bool("graph", false),
                        .trace_dir = f.find_string("trace_dir")};
  if (out.warmup < 0) throw ProtocolError(fmt::format("perf: warmup {} is negative", out.warmup));
  if (out.iterations < 1) throw ProtocolError(fmt::format("perf: iterations {} is less than 1", out.iterations));
  return out;
}
PerfResult read_perf_result(const Fields& f) {
  const json step = f.require_object("step_ms");
  PerfResult out{.request = read_perf_request(f),
                 .step_ms = read_step_ms(Fields(step, "step_ms")),
                 .ranks = read_list(f, "ranks", read_rank_ms),
                 .one_rank_ms = std::nullopt,
                 .one_rank_reason = f.get_string("one_rank_reason", ""),
                 .bytes_sent = f.find_int64("bytes_sent")};
  if (out.bytes_sent.value_or(0) < 0)
    throw ProtocolError(fmt::format("perf: bytes_sent {} is negative", *out.bytes_sent));
  if (const json one_rank = f.get_object("one_rank_ms"); !one_rank.empty()) {
    out.one_rank_ms = read_step_ms(Fields(one_rank, "one_rank_ms"));
  }
  return out;
}

ReadyEvent read_ready(const Fields& f) {
  return {.protocol = f.get_int("protocol"),
          .worker = f.get_string("worker", ""),
          .world_size = f.get_int("world_size"),
          .device = f.get_string("device", ""),
          .ranks = read_list(f, "ranks", read_rank_info),
          .capabilities = f.get_object("capabilities"),
          .versions = f.get_object("versions"),
          .startup_ms = f.get_numbers("startup_ms")};
}
ResultEvent read_result(const Fields& f) {
  const std::string name = f.get_string("outcome");
  const std::optional<Outcome> outcome = parse_outcome(name);
  if (!outcome) throw ProtocolError(fmt::format("result: unknown outcome \"{}\"", name));
  ResultEvent out{.seq = f.get_int64("seq"),
                  .outcome = *outcome,
                  .reason = f.get_string("reason", ""),
                  .healthy = f.get_bool("healthy", true),
                  .ranks = read_list(f, "ranks", read_rank_result),
                  .checks = read_list(f, "checks", read_check),
                  .timings_ms = f.get_numbers("timings_ms"),
                  .hygiene = read_list(f, "hygiene", read_hygiene),
                  .backend = f.get_string("backend", ""),
                  .backend_note = f.get_string("backend_note", ""),
                  .perf = std::nullopt,
                  .lost_outputs = read_list(f, "lost_outputs", read_lost_output)};
  if (const json perf = f.get_object("perf"); !perf.empty()) out.perf = read_perf_result(Fields(perf, "perf"));
  return out;
}
PongEvent read_pong(const Fields& f) {
  PongEvent out{.seq = f.get_int64("seq"), .ranks = {}};
  for (const std::int64_t rank : f.get_int64s("ranks", {0})) out.ranks.push_back(static_cast<int>(rank));
  return out;
}
ProtocolErrorEvent read_protocol_error(const Fields& f) {
  return {f.find_int64("seq"), f.get_string("message", "")};
}

RunRequest read_run(const Fields& f) {
  RunRequest out{.seq = f.get_int64("seq"),
                 .id = f.get_string("id", ""),
                 .case_json = f.require_object("case"),
                 .lengths = f.get_object("lengths"),
                 .timeout_ms = f.get_int64("timeout_ms", RunRequest{}.timeout_ms),
                 .dump_dir = std::nullopt,
                 .reference_cache = true,
                 .perf = std::nullopt};
  if (out.timeout_ms <= 0) throw ProtocolError(fmt::format("run: timeout_ms {} is not positive", out.timeout_ms));
  const json options_json = f.get_object("options");
  const Fields options(options_json, "run: options");
  out.dump_dir = options.find_string("dump_dir");
  out.reference_cache = options.get_bool("reference_cache", true);
  if (const json perf = options.get_object("perf"); !perf.empty()) out.perf = read_perf_request(Fields(perf, "perf"));
  return out;
}

Event read_event(const std::string& name, const Fields& f) {
  if (name == "ready") return read_ready(f);
  if (name == "started") return StartedEvent{f.get_int64("seq")};
  if (name == "progress") return ProgressEvent{f.get_int64("seq"), f.get_string("phase", "")};
  if (name == "result") return read_result(f);
  if (name == "pong") return read_pong(f);
  if (name == "protocol_error") return read_protocol_error(f);
  return UnknownEvent{name};
}

Request read_request(const std::string& name, const Fields& f) {
  if (name == "run") return read_run(f);
  if (name == "prepare")
    return PrepareRequest{f.get_int64("seq", 0), f.require_object("case"), f.get_object("lengths")};
  if (name == "cancel") return CancelRequest{f.get_int64("seq")};
  if (name == "ping") return PingRequest{f.get_int64("seq"), f.get_bool("all", false)};
  if (name == "shutdown") return ShutdownRequest{};
  throw ProtocolError(fmt::format("unknown op \"{}\"", name));
}

// Copying and writing JSON takes stack for each level: a line of 16 MiB of brackets must not end the reader.
void expect_shallow(std::string_view text) {
  constexpr int kDeepest = 64;
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest) throw ProtocolError(fmt::format("nested more than {} deep", kDeepest));
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

// Reads one message; a ProtocolError leaves with the seq of the text, if it has one.
template <typename Message>
Message parse_message(std::string_view text, const char* key, Message (*read)(const std::string&, const Fields&)) {
  std::optional<std::int64_t> seq;
  try {
    expect_shallow(text);
    const json message = json::parse(with_whole_surrogates(to_valid_utf8(text)));
    const Fields top(message, key);
    seq = top.peek_int64("seq");
    const std::string name = top.get_string(key);
    return read(name, Fields(message, name));
  } catch (const json::exception& e) {
    throw ProtocolError(fmt::format("not JSON: {}", e.what()));
  } catch (ProtocolError& e) {
    e.seq = seq;
    throw;
  }
}

}  // namespace

std::string_view to_string(Outcome outcome) {
  const auto* const found = std::ranges::find(kOutcomes, outcome, &std::pair<Outcome, std::string_view>::first);
  return found->second;
}

std::optional<Outcome> parse_outcome(std::string_view text) {
  const auto* const found = std::ranges::find(kOutcomes, text, &std::pair<Outcome, std::string_view>::second);
  if (found == kOutcomes.end()) return std::nullopt;
  return found->first;
}

std::string encode(const Request& request) {
  return dump(std::visit([](const auto& m) { return to_json(m); }, request));
}
std::string encode(const Event& event) {
  return dump(std::visit([](const auto& m) { return to_json(m); }, event));
}
std::string format_response(const Event& event) {
  return fmt::format("\n{}{}\n", kResponsePrefix, encode(event));
}

Request parse_request(std::string_view json) {
  return parse_message<Request>(json, "op", read_request);
}
Event parse_event(std::string_view json) {
  return parse_message<Event>(json, "event", read_event);
}

int shared_gpus(const ReadyEvent& ready) {
  const auto found = ready.capabilities.find("shared_gpus");
  if (found == ready.capabilities.end() || !found->is_number_integer()) return 0;
  return std::max(0, found->get<int>());
}

}  // namespace cp_pool::protocol
