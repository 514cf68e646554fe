#include "driver/reporters/events_json.h"

#include <cmath>
#include <string>
#include <string_view>
#include <type_traits>

#include "cases/case_json.h"
#include "driver/figures.h"

namespace cp_pool {

namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

// JSON has nlohmann's two object types here: free-form parts keep the order of their keys.
Json ordered(const nlohmann::json& json) {
  return Json::parse(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Json milliseconds(const std::map<std::string, double>& values) {
  Json json = Json::object();
  for (const auto& [name, value] : values) json[name] = number(value);
  return json;
}

Json part(const PoolId& pool) {
  return {{"key", pool.key}, {"generation", pool.generation}};
}

Json part(const protocol::RankInfo& info) {
  return {{"rank", info.rank}, {"host", info.host}, {"pid", info.pid}};
}

Json part(const protocol::RankResult& result) {
  return {{"rank", result.rank}, {"ok", result.ok}, {"error", result.error}, {"output_hash", result.output_hash}};
}

Json part(const protocol::TensorCheck& check) {
  return {{"tensor", check.tensor},
          {"rank", check.rank},
          {"ok", check.ok},
          {"error", check.measured ? number(check.error) : Json(nullptr)},
          {"bound", check.measured ? number(check.bound) : Json(nullptr)},
          {"baseline", number(check.baseline)},
          {"max_abs", number(check.max_abs)},
          {"rms", number(check.rms)},
          {"worst_index", check.worst_index},
          {"message", check.message}};
}

Json part(const protocol::Hygiene& hygiene) {
  return {{"rank", hygiene.rank},
          {"rss_kib", hygiene.rss_kib},
          {"fds", hygiene.fds},
          {"threads", hygiene.threads},
          {"gpu_kib", hygiene.gpu_kib}};
}

Json part(const StderrTail& tail) {
  return {{"rank", tail.rank}, {"fenced", tail.fenced}, {"text", tail.text}};
}

Json part(const RankExit& exit) {
  return {{"rank", exit.rank}, {"pid", exit.pid}, {"status", exit.status}};
}

Json part(const Leftover& leftover) {
  return {{"pid", leftover.pid}, {"state", leftover.state}, {"wchan", leftover.wchan}};
}

Json part(const protocol::StepMs& ms) {
  return {{"median", number(ms.median)}, {"min", number(ms.min)}, {"max", number(ms.max)}};
}

Json part(const protocol::RankMs& rank) {
  return {{"rank", rank.rank}, {"ms", part(rank.ms)}};
}

template <typename Item>
Json list(const std::vector<Item>& items) {
  Json json = Json::array();
  for (const Item& item : items) json.push_back(part(item));
  return json;
}

Json part(const PerfFigures& figures) {
  const protocol::PerfResult& measured = figures.measured;
  return {{"ms", number(figures.ms)},
          {"min_ms", number(measured.step_ms.min)},
          {"max_ms", number(measured.step_ms.max)},
          {"warmup", measured.request.warmup},
          {"iterations", measured.request.iterations},
          {"graph", measured.request.graph},
          {"tflops", number(figures.tflops)},
          {"bytes_sent", figures.bytes_sent},
          {"gbytes_per_s", number(figures.gbytes_per_s)},
          {"efficiency", figures.efficiency ? number(*figures.efficiency) : Json(nullptr)},
          {"one_rank_ms", measured.one_rank_ms ? part(*measured.one_rank_ms) : Json(nullptr)},
          {"one_rank_reason", measured.one_rank_reason},
          {"baseline_ms", figures.baseline_ms ? number(*figures.baseline_ms) : Json(nullptr)},
          {"ratio", figures.ratio() ? number(*figures.ratio()) : Json(nullptr)},
          {"ranks", list(measured.ranks)}};
}

Json body(const RunStarted& event) {
  return {{"type", "run_started"},
          {"title", event.title},
          {"size", event.size},
          {"device", event.device},
          {"shared_gpus", event.shared_gpus},
          {"cases", event.cases},
          {"version", event.version},
          {"ids", event.ids}};
}

Json body(const PoolSpawned& event) {
  return {{"type", "pool_spawned"}, {"pool", part(event.pool)}, {"world_size", event.world_size}, {"pids", event.pids}};
}

Json body(const PoolReady& event) {
  return {{"type", "pool_ready"},
          {"pool", part(event.pool)},
          {"spawn_to_ready_ms", number(event.spawn_to_ready_ms)},
          {"worker", event.ready.worker},
          {"protocol", event.ready.protocol},
          {"world_size", event.ready.world_size},
          {"device", event.ready.device},
          {"shared_gpus", protocol::shared_gpus(event.ready)},
          {"ranks", list(event.ready.ranks)},
          {"capabilities", ordered(event.ready.capabilities)},
          {"versions", ordered(event.ready.versions)},
          {"startup_ms", milliseconds(event.ready.startup_ms)}};
}

Json body(const PoolRetired& event) {
  return {{"type", "pool_retired"},
          {"pool", part(event.pool)},
          {"reason", to_string(event.reason)},
          {"detail", event.detail},
          {"cases", event.cases},
          {"exits", list(event.exits)},
          {"leftovers", list(event.leftovers)}};
}

// Of a case that is of no stream.
Json number_of_line(std::size_t number) {
  return number > 0 ? Json(number) : Json(nullptr);
}

Json body(const CaseStarted& event) {
  Json json = {{"type", "case_started"}, {"index", event.index},     {"id", event.id},
               {"seq", event.seq},       {"pool", part(event.pool)}, {"attempt", event.attempt}};
  if (event.number > 0) json["number"] = event.number;
  if (event.c) json["case"] = to_json(*event.c);
  return json;
}

Json body(const CaseProgress& event) {
  return {{"type", "case_progress"},
          {"index", event.index},
          {"id", event.id},
          {"seq", event.seq},
          {"pool", part(event.pool)},
          {"phase", event.phase},
          {"running_ms", number(event.running_ms)},
          {"timeout_ms", number(event.timeout_ms)},
          {"slow", event.slow}};
}

Json body(const RunStopping& event) {
  return {{"type", "run_stopping"}, {"reason", to_string(event.reason)}, {"limit_ms", number(event.limit_ms)}};
}

Json body(const CaseFinished& event) {
  Json json = {{"type", "case_finished"}};
  json.update(case_result_json(event));
  return json;
}

Json body(const RunPaused& event) {
  return {{"type", "run_paused"}, {"paused_ms", number(event.paused_ms)}, {"ranks_stopped", event.ranks_stopped}};
}

Json body(const OutputLost& event) {
  return {{"type", "output_lost"}, {"output", event.output}, {"message", event.message}};
}

Json body(const RunFinished& event) {
  Json counts = Json::object();
  for (std::size_t i = 0; i < kCaseOutcomes; ++i) {
    counts[std::string{to_string(static_cast<CaseOutcome>(i))}] = event.counts.at(i);
  }
  return {{"type", "run_finished"},
          {"expanded", event.expanded},
          {"counts", counts},
          {"ledger_exact", event.ledger_exact},
          {"interrupted", event.interrupted},
          {"duration_ms", number(event.duration_ms)},
          {"driver_cpu_ms", number(event.driver_cpu_ms)},
          {"exit_code", event.exit_code}};
}

}  // namespace

Json case_result_json(const CaseFinished& event) {
  return {{"index", event.index},
          {"id", event.id},
          {"number", number_of_line(event.number)},
          {"run", event.run},
          {"runs", event.runs},
          {"outcome", to_string(event.outcome)},
          {"reason", event.reason},
          {"unverified_by_figures", is_unverified_by_figures(event)},
          {"duration_ms", number(event.duration_ms)},
          {"seq", event.seq},
          {"pool", event.pool ? part(*event.pool) : Json(nullptr)},
          {"attempts", event.attempts},
          {"backend", event.backend},
          {"shared_gpus", event.shared_gpus},
          {"backend_note", event.backend_note},
          {"ranks", list(event.ranks)},
          {"checks", list(event.checks)},
          {"timings_ms", milliseconds(event.timings_ms)},
          {"hygiene", list(event.hygiene)},
          {"other_bits", event.other_bits ? Json(*event.other_bits) : Json(nullptr)},
          {"perf", event.perf ? part(*event.perf) : Json(nullptr)},
          {"stderr", list(event.stderr_tails)},
          {"case", to_json(event.c)},
          {"rerun", event.rerun}};
}

Json event_json(const Event& event) {
  return std::visit([](const auto& e) { return body(e); }, event);
}

std::string to_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cp_pool
