#include "driver/reporters/html_sink.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "driver/figures.h"
#include "driver/reporters/case_runs.h"
#include "driver/reporters/failure_text.h"
#include "driver/reporters/search_text.h"
#include "driver/reporters/text_format.h"
#include "driver/reporters/verdict_text.h"
#include "driver/reporters/xml_nodes.h"

namespace cp_pool {

namespace {

// Returns the check nearest to its bound: "0.43 dq rank 1"; empty if nothing was checked.
std::string nearest_to_its_bound(const std::vector<Check>& checks) {
  // Figures without a ratio, such as a NaN, rank beyond any bound. A check without figures comes last.
  const auto urgency = [](const Check& check) {
    if (!check.measured) return -1.0;
    return error_over_bound(check).value_or(std::numeric_limits<double>::infinity());
  };
  const auto worst = std::ranges::max_element(checks, {}, urgency);
  if (worst == checks.end() || !worst->measured) return "";
  return fmt::format("{} {} rank {}", ratio_text(*worst), worst->tensor, worst->rank);
}

std::string on_one_line(std::string_view foreign) {
  std::string text = shortened(foreign);
  std::ranges::replace(text, '\n', ' ');
  return text;
}

}  // namespace

HtmlSink::HtmlSink(std::filesystem::path path) : file_{std::move(path)} {}

void HtmlSink::on_event(const Event& event) {
  page_.timeline.add(event);
  std::visit([this](const auto& e) { this->on(e); }, event);
}

void HtmlSink::on(const RunStarted& event) {
  run_ = event;
  perf_ = PerfTable{event.baseline};
  page_.title = fmt::format("{}{} on {}{}", event.title, event.size.empty() ? "" : " (" + event.size + ")",
                            event.device, implementation_text(event));
}

HtmlPool& HtmlSink::pool_of(const PoolId& id) {
  const auto same = [&](const HtmlPool& pool) { return pool.id.key == id.key && pool.id.generation == id.generation; };
  const auto found = std::ranges::find_if(page_.pools, same);
  if (found != page_.pools.end()) return *found;
  page_.pools.emplace_back().id = id;
  return page_.pools.back();
}

void HtmlSink::on(const PoolSpawned& event) {
  pool_of(event.pool);
}

void HtmlSink::on(const PoolReady& event) {
  HtmlPool& pool = pool_of(event.pool);
  pool.ready_ms = event.spawn_to_ready_ms;
  pool.worker = on_one_line(event.ready.worker);
  if (const int gpus = protocol::shared_gpus(event.ready); gpus > 0) {
    pool.worker += fmt::format(", ranks share {}", count_of(static_cast<std::size_t>(gpus), "GPU"));
  }
  for (const auto& [name, version] : event.ready.versions.items()) {
    pool.worker +=
        on_one_line(fmt::format(", {} {}", name, version.is_string() ? version.get<std::string>() : version.dump()));
  }
  std::set<std::string> hosts;
  for (const protocol::RankInfo& rank : event.ready.ranks) {
    if (hosts.insert(rank.host).second) pool.hosts += (pool.hosts.empty() ? "" : " ") + on_one_line(rank.host);
  }
}

void HtmlSink::on(const PoolRetired& event) {
  HtmlPool& pool = pool_of(event.pool);
  pool.cases = event.cases;
  pool.end = std::string{to_string(event.reason)};
  if (!event.detail.empty()) pool.end += ": " + on_one_line(event.detail);
}

void HtmlSink::on(const CaseTried& event) {
  summary_.add(event);
  tries_.add(event);
  add_failure(event);
  page_.failures.back().head += ", was run again";
}

void HtmlSink::on(const CaseFinished& event) {
  summary_.add(event);
  timings_.add(event);
  perf_.add(event);
  page_.features.add(event);
  HtmlCase& c = page_.cases.emplace_back();
  c.index = event.index;
  c.id = case_name(event);
  c.suite = suite_of(event);
  c.model = event.payload->model();
  c.column = event.payload->column();
  c.outcome = event.outcome;
  c.word = outcome_word(event);
  c.urgency = urgency_of(event);
  c.ms = event.duration_ms;
  c.backend = event.backend;
  c.nearest = nearest_to_its_bound(event.checks);
  c.earlier = event.earlier;
  c.note = event.reason.empty() ? words_on_pass(event) : on_one_line(event.reason);
  if (event.bound_factor && !c.nearest.empty()) c.nearest += fmt::format(" ({})", bound_factor_text(event));
  if (event.first_run) c.note += (c.note.empty() ? "" : "; ") + on_one_line(first_run_text(event));
  if (const std::string tries = tries_text(event, tries_.of(event.index)); !tries.empty()) {
    c.note += (c.note.empty() ? "" : "; ") + tries;
  }
  if (is_to_fail(event.expected)) c.note += (c.note.empty() ? "" : "; ") + on_one_line(expected_text(event));
  const bool told_of =
      is_failure(event) || (event.outcome == CaseOutcome::infra && reasons_shown_.insert(event.reason).second);
  if (told_of && !is_shown_by_smallest(event.search)) add_failure(event);
}

// Verdicts come when all cases have ended.
void HtmlSink::on(const CaseVerdict& event) {
  summary_.add(event);
  for (HtmlCase& c : page_.cases) {
    if (c.index == event.index) c.note += fmt::format("{}{}", c.note.empty() ? "" : "; ", verdict_line(event.verdict));
  }
  const auto failure =
      std::ranges::find(page_.failures.rbegin(), page_.failures.rend(), event.index, &HtmlFailure::index);
  if (failure != page_.failures.rend()) failure->text += verdict_text(event.verdict);
}

void HtmlSink::add_failure(const CaseFinished& event) {
  HtmlFailure& failure = page_.failures.emplace_back();
  failure.index = event.index;
  failure.kind = kinds_.add(event);
  failure.word = outcome_word(event);
  failure.head = fmt::format("{} after {}", case_name(event), format_duration(event.duration_ms));
  if (event.pool) failure.head += " on pool " + to_string(*event.pool);
  if (event.attempts > 1) failure.head += fmt::format(", attempt {}", event.attempts);
  if (is_to_fail(event.expected)) failure.text = expected_text(event) + '\n';
  failure.text += failure_details(event) + stderr_details(event) + earlier_runs_text(event);
  failure.rerun = event.rerun;
  failure.diagnosis = event.diagnosis;
}

void HtmlSink::on(const SearchFinished& event) {
  search_summary_ = search_summary(event, found_);
}

void HtmlSink::on(const RunFinished& event) {
  page_.run =
      fmt::format("cp-pool {}, {:%Y-%m-%d %H:%M:%S} UTC, {}{}", run_.version,
                  fmt::gmtime(std::chrono::system_clock::to_time_t(run_.started)), format_duration(event.duration_ms),
                  event.interrupted ? ": interrupted, the run was stopped before its end" : "");
  page_.ledger = ledger_line(event);
  page_.good = event.exit_code == 0;
  page_.summary = summary_.text() + search_summary_;
  page_.failed = summary_.failures(run_.rerun_failed);
  page_.perf = perf_.text();
  page_.timings = timings_.text();
  std::ranges::stable_sort(page_.cases, {}, &HtmlCase::index);
  std::ranges::stable_sort(page_.failures, {}, &HtmlFailure::index);
  std::map<std::size_t, std::size_t> firsts;  // the place of each kind's first failure
  for (const HtmlFailure& failure : page_.failures) firsts.try_emplace(failure.kind, firsts.size());
  std::ranges::stable_sort(page_.failures, {}, [&](const HtmlFailure& failure) { return firsts.at(failure.kind); });
  file_.commit(html_text(page_));
}

}  // namespace cp_pool
