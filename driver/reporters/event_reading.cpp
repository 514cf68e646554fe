#include "driver/reporters/event_reading.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "cases/case_json.h"
#include "cases/did_you_mean.h"
#include "driver/reporters/jsonl_sink.h"
#include "worker/protocol/json_fields.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

namespace {

using nlohmann::json;
using protocol::Fields;

// The value that to_string spells so.
template <typename Enum>
Enum named(const Fields& fields, const char* field, Enum last) {
  const std::string name = fields.get_string(field);
  std::vector<std::string> known;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    const auto value = static_cast<Enum>(i);
    if (to_string(value) == name) return value;
    known.emplace_back(to_string(value));
  }
  throw protocol::ProtocolError(fmt::format("\"{}\": {} is not among {}{}", field, json(name).dump(), join_names(known),
                                            did_you_mean(name, known)));
}

// Most parts have the form that they have in the protocol, which knows how to read them.
template <typename Message>
Message message_of(json object, const char* event) {
  object["event"] = event;
  return std::get<Message>(protocol::parse_event(object.dump()));
}

PoolId read_pool(const json& line) {
  const json pool = Fields{line, "event"}.require_object("pool");
  const Fields fields{pool, "pool"};
  return {.key = fields.get_string("key"), .generation = fields.get_int("generation")};
}

template <typename Read>
auto read_list(const json& line, const char* name, Read read) {
  std::vector<decltype(read(std::declval<const Fields&>()))> out;
  for (const json& item : Fields{line, "event"}.get_array(name)) out.push_back(read(Fields{item, name}));
  return out;
}

template <typename Item>
std::vector<Item> read_items(const json& line, const char* name) {
  std::vector<Item> out;
  for (const json& item : Fields{line, "event"}.get_array(name)) {
    const bool right = std::is_same_v<Item, std::string> ? item.is_string() : item.is_number_integer();
    if (!right) throw protocol::ProtocolError(fmt::format("\"{}\": it cannot hold {}", name, item.dump()));
    out.push_back(item.get<Item>());
  }
  return out;
}

RunStarted read_run_started(const json& line) {
  const Fields fields{line, "run_started"};
  return {.title = fields.get_string("title", ""),
          .size = fields.get_string("size", ""),
          .device = fields.get_string("device", ""),
          .shared_gpus = fields.get_int("shared_gpus", 0),
          .cases = static_cast<std::size_t>(std::max<std::int64_t>(fields.get_int64("cases", 0), 0)),
          .version = fields.get_string("version", ""),
          .ids = read_items<std::string>(line, "ids"),
          .started = parse_utc_timestamp(fields.get_string("ts", "")).value_or(RunStarted{}.started)};
}

PoolSpawned read_pool_spawned(const json& line) {
  return {.pool = read_pool(line),
          .world_size = Fields{line, "pool_spawned"}.get_int("world_size"),
          .pids = read_items<int>(line, "pids")};
}

PoolReady read_pool_ready(const json& line) {
  return {.pool = read_pool(line),
          .spawn_to_ready_ms = Fields{line, "pool_ready"}.get_double("spawn_to_ready_ms", 0),
          .ready = message_of<protocol::ReadyEvent>(line, "ready")};
}

PoolRetired read_pool_retired(const json& line) {
  const Fields fields{line, "pool_retired"};
  return {.pool = read_pool(line),
          .reason = named(fields, "reason", RetireReason::interrupted),
          .detail = fields.get_string("detail", ""),
          .cases = fields.get_int("cases", 0),
          .exits = read_list(
              line, "exits",
              [](const Fields& f) { return RankExit{f.get_int("rank"), f.get_int("pid"), f.get_string("status")}; }),
          .leftovers = read_list(line, "leftovers", [](const Fields& f) {
            return Leftover{f.get_int("pid"), f.get_string("state"), f.get_string("wchan")};
          })};
}

CaseStarted read_case_started(const json& line) {
  const Fields fields{line, "case_started"};
  return {.index = static_cast<std::size_t>(fields.get_int64("index", 0)),
          .id = fields.get_string("id"),
          .seq = fields.get_int64("seq", 0),
          .pool = read_pool(line),
          .attempt = fields.get_int("attempt", 1),
          .number = static_cast<std::size_t>(fields.get_int64("number", 0)),
          .c = line.contains("case") ? std::optional{parse_case(fields.require_object("case"), "case")} : std::nullopt};
}

CaseProgress read_case_progress(const json& line) {
  const Fields fields{line, "case_progress"};
  return {.index = static_cast<std::size_t>(fields.get_int64("index", 0)),
          .id = fields.get_string("id"),
          .seq = fields.get_int64("seq", 0),
          .pool = read_pool(line),
          .phase = fields.get_string("phase", ""),
          .running_ms = fields.get_double("running_ms", 0),
          .timeout_ms = fields.get_double("timeout_ms", 0),
          .slow = fields.get_bool("slow", false)};
}

RunStopping read_run_stopping(const json& line) {
  const Fields fields{line, "run_stopping"};
  return {.reason = named(fields, "reason", RunStopping::Reason::global_timeout),
          .limit_ms = fields.get_double("limit_ms", 0)};
}

PerfFigures read_figures(json perf) {
  const Fields fields{perf, "perf"};
  const auto find_double = [&](const char* name) -> std::optional<double> {
    const double figure = fields.get_double(name, std::numeric_limits<double>::quiet_NaN());
    return std::isfinite(figure) ? std::optional{figure} : std::nullopt;
  };
  PerfFigures figures;
  figures.ms = fields.get_double("ms", 0);
  figures.tflops = fields.get_double("tflops", 0);
  figures.bytes_sent = fields.get_int64("bytes_sent", 0);
  figures.gbytes_per_s = fields.get_double("gbytes_per_s", 0);
  figures.efficiency = find_double("efficiency");
  figures.baseline_ms = find_double("baseline_ms");
  perf["step_ms"] = {
      {"median", figures.ms}, {"min", fields.get_double("min_ms", 0)}, {"max", fields.get_double("max_ms", 0)}};
  figures.measured =
      message_of<protocol::ResultEvent>({{"seq", 0}, {"outcome", "pass"}, {"perf", perf}}, "result").perf.value();
  return figures;
}

CaseFinished read_case_finished(const json& line) {
  const Fields fields{line, "case_finished"};
  json result = line;
  result["outcome"] = "error";  // of the protocol's, and without a meaning here
  result.erase("perf");         // it has another form
  auto message = message_of<protocol::ResultEvent>(std::move(result), "result");
  CaseFinished out;
  out.index = static_cast<std::size_t>(fields.get_int64("index", 0));
  out.id = fields.get_string("id");
  out.number = static_cast<std::size_t>(fields.get_int64("number", 0));
  out.run = fields.get_int("run", 1);
  out.runs = fields.get_int("runs", 1);
  out.c = parse_case(fields.require_object("case"), "case");
  out.seq = message.seq;
  if (line.contains("pool") && !line["pool"].is_null()) out.pool = read_pool(line);
  out.attempts = fields.get_int("attempts", 0);
  out.outcome = named(fields, "outcome", CaseOutcome::not_run);
  out.reason = std::move(message.reason);
  out.duration_ms = fields.get_double("duration_ms", 0);
  out.ranks = std::move(message.ranks);
  out.checks = std::move(message.checks);
  out.timings_ms = std::move(message.timings_ms);
  out.hygiene = std::move(message.hygiene);
  out.backend = std::move(message.backend);
  out.backend_note = std::move(message.backend_note);
  out.shared_gpus = fields.get_int("shared_gpus", 0);
  if (line.contains("other_bits") && !line["other_bits"].is_null()) {
    out.other_bits = read_items<int>(line, "other_bits");
  }
  if (line.contains("perf") && !line["perf"].is_null()) out.perf = read_figures(line["perf"]);
  out.stderr_tails = read_list(line, "stderr", [](const Fields& f) {
    return StderrTail{f.get_int("rank"), f.get_string("text"), f.get_bool("fenced")};
  });
  out.rerun = fields.get_string("rerun", "");
  return out;
}

RunPaused read_run_paused(const json& line) {
  const Fields fields{line, "run_paused"};
  return {.paused_ms = fields.get_double("paused_ms", 0), .ranks_stopped = fields.get_bool("ranks_stopped", false)};
}

RunFinished read_run_finished(const json& line) {
  const Fields fields{line, "run_finished"};
  RunFinished out;
  const json counts = fields.get_object("counts");
  const Fields count_fields{counts, "counts"};
  for (std::size_t i = 0; i < kCaseOutcomes; ++i) {
    const std::string name{to_string(static_cast<CaseOutcome>(i))};
    out.counts.at(i) = static_cast<std::size_t>(count_fields.get_int64(name.c_str(), 0));
  }
  out.expanded = static_cast<std::size_t>(fields.get_int64("expanded"));
  out.duration_ms = fields.get_double("duration_ms", 0);
  out.driver_cpu_ms = fields.get_double("driver_cpu_ms", 0);
  out.interrupted = fields.get_bool("interrupted", false);
  out.ledger_exact = fields.get_bool("ledger_exact", true);
  out.exit_code = fields.get_int("exit_code", 0);
  return out;
}

}  // namespace

std::optional<Event> read_event(const json& line) {
  const std::string type = Fields{line, "event"}.get_string("type");
  if (type == "run_started") return read_run_started(line);
  if (type == "pool_spawned") return read_pool_spawned(line);
  if (type == "pool_ready") return read_pool_ready(line);
  if (type == "pool_retired") return read_pool_retired(line);
  if (type == "case_started") return read_case_started(line);
  if (type == "case_progress") return read_case_progress(line);
  if (type == "run_stopping") return read_run_stopping(line);
  if (type == "case_finished") return read_case_finished(line);
  if (type == "run_paused") return read_run_paused(line);
  if (type == "run_finished") return read_run_finished(line);
  return std::nullopt;
}

}  // namespace cp_pool
