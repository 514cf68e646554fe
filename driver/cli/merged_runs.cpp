#include "driver/cli/merged_runs.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/case_json.h"

namespace cp_pool {

namespace {

// Of a case that never ran its ID is all there is: suite/model/comm/cpN/layout/dtype, then what is set beside it.
Case case_of_id(const std::string& id) {
  constexpr std::array<const char*, 6> kFields{"suite", "model", "comm", "cp_size", "layout", "dtype"};
  Case c;
  std::size_t begin = 0;
  for (const char* name : kFields) {
    const std::size_t end = std::min(id.find('/', begin), id.size());
    std::string part = id.substr(begin, end - begin);
    try {
      const bool size = std::string_view{name} == "cp_size" && part.starts_with("cp");
      const Json value = size ? Json::parse(part.substr(2), nullptr, /*allow_exceptions=*/false) : Json(part);
      find_case_field(name)->read(value, JsonPlace{"ID"}, c);
    } catch (const CaseError&) {  // an ID of a stream's own
      return c;
    }
    if (end == id.size()) return c;
    begin = end + 1;
  }
  return c;
}

std::string each_once(const std::vector<RunStarted>& headers, std::string RunStarted::* field) {
  std::vector<std::string> seen;
  std::string text;
  for (const RunStarted& header : headers) {
    const std::string& value = header.*field;
    if (value.empty() || std::ranges::find(seen, value) != seen.end()) continue;
    seen.push_back(value);
    text += (text.empty() ? "" : "; ") + value;
  }
  return text;
}

std::string why_unfinished(const UnfinishedRun& run, bool running) {
  if (run.writer) {
    return fmt::format("its run goes on ({}): this case {}", *run.writer,
                       running ? "is running" : "has not started yet");
  }
  return running ? "the run was killed while this case ran" : "the run was killed before this case started";
}

}  // namespace

void MergedRuns::take(Event event, std::optional<std::chrono::system_clock::time_point> at) {
  if (const auto* header = std::get_if<RunStarted>(&event)) {
    begin(*header);
    at = header->started;
  }
  if (!run_) throw std::invalid_argument("the first event is no run_started");
  if (at) {
    first_ = std::min(first_.value_or(*at), *at);
    last_ = std::max(last_.value_or(*at), *at);
  }
  if (auto* spawned = std::get_if<PoolSpawned>(&event)) count_on(spawned->pool);
  if (auto* ready = std::get_if<PoolReady>(&event)) count_on(ready->pool);
  if (auto* retired = std::get_if<PoolRetired>(&event)) count_on(retired->pool);
  if (auto* started = std::get_if<CaseStarted>(&event)) {
    count_on(started->pool);
    started->index += run_->first_index;
    run_->running.insert(started->id);
    run_->pending.start(started->id);
  }
  if (auto* finished = std::get_if<CaseFinished>(&event)) {
    if (finished->pool) count_on(*finished->pool);
    add_case(std::move(*finished));
  } else if (const auto* end = std::get_if<RunFinished>(&event)) {
    run_->end = *end;
  } else if (std::holds_alternative<CaseProgress>(event) || std::holds_alternative<RunStopping>(event)) {
    return;  // said while there was time to act on it
  } else if (!std::holds_alternative<RunStarted>(event)) {
    events_.push_back(std::move(event));
  }
}

void MergedRuns::end_file(const std::optional<std::string>& writer) {
  if (run_) run_->writer = writer;
  end_run();
}

void MergedRuns::begin(const RunStarted& header) {
  end_run();
  UnfinishedRun& run = run_.emplace();
  run.header = header;
  run.first_index = ledger_.expected();
  run.first_generation = generations_;
  run.pending.begin(header.ids, header.cases);
  headers_.push_back(header);
}

void MergedRuns::count_on(PoolId& pool) {
  pool.generation += run_->first_generation[pool.key];
  int& last = generations_[pool.key];
  last = std::max(last, pool.generation);
}

void MergedRuns::add_case(CaseFinished event) {
  run_->pending.finish(event.id);
  run_->running.erase(event.id);
  ++run_->finished;
  compared_ |= event.perf && event.perf->baseline_ms;
  event.index += run_->first_index;
  ledger_.record(ledger_.expect(), event.outcome);
  events_.emplace_back(std::move(event));
}

void MergedRuns::end_run() {
  if (!run_) return;
  if (run_->end) {
    exact_ &= run_->end->ledger_exact && run_->end->expanded == run_->finished;
    interrupted_ |= run_->end->interrupted;
    driver_cpu_ms_ += run_->end->driver_cpu_ms;
    only_duration_ms_ = headers_.size() == 1 ? std::optional{run_->end->duration_ms} : std::nullopt;
  } else {
    only_duration_ms_.reset();
    if (run_->writer) {
      going_on_.emplace_back(run_->header.title, *run_->writer);
    } else if (run_->header.ids.empty()) {
      unknown_length_.push_back(run_->header.title);
    }
    while (!run_->pending.times().empty()) {
      CaseFinished event;
      event.index = run_->finished;
      event.id = run_->pending.times().begin()->first;
      event.c = case_of_id(event.id);
      event.reason = why_unfinished(*run_, run_->running.contains(event.id));
      add_case(std::move(event));
    }
  }
  run_.reset();
}

std::vector<Event> MergedRuns::finish(bool no_skip) {
  end_run();
  RunStarted header = headers_.empty() ? RunStarted{} : headers_.front();
  header.title = each_once(headers_, &RunStarted::title);
  header.size = each_once(headers_, &RunStarted::size);
  header.device = each_once(headers_, &RunStarted::device);
  header.version = each_once(headers_, &RunStarted::version);
  header.cases = ledger_.expected();
  header.started = first_.value_or(header.started);
  RunFinished end = ledger_.close(interrupted_, no_skip);
  end.ledger_exact &= exact_;
  end.exit_code = exit_code(end, no_skip);
  end.driver_cpu_ms = driver_cpu_ms_;
  end.duration_ms =
      only_duration_ms_.value_or(first_ ? std::chrono::duration<double, std::milli>(*last_ - *first_).count() : 0);
  std::vector<Event> out;
  out.reserve(events_.size() + 2);
  out.emplace_back(std::move(header));
  std::ranges::move(events_, std::back_inserter(out));
  out.emplace_back(end);
  return out;
}

}  // namespace cp_pool
