#include "driver/cli/history/merged_runs.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_error.h"
#include "cases/case_json.h"
#include "driver/cli/option_kinds.h"
#include "driver/cli/select/shard.h"
#include "driver/report/output_file.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

// Restores a case that never ran from its ID, since nothing else of it is known: suite/model/comm/cpN/layout/dtype,
// then further fields.
Case case_of_id(const std::string& id) {
  constexpr std::array<std::string_view, 6> kFields{"suite", "model", "comm", "cp_size", "layout", "dtype"};
  Case c;
  const std::vector<std::string> parts = split(id, '/');
  for (std::size_t i = 0; i < std::min(parts.size(), kFields.size()); ++i) {
    const bool size = kFields.at(i) == "cp_size" && parts[i].starts_with("cp");
    const Json value = size ? Json::parse(parts[i].substr(2), nullptr, /*allow_exceptions=*/false) : Json(parts[i]);
    try {
      find_case_field(kFields.at(i))->read(value, JsonPlace{"ID"}, c);
    } catch (const CaseError&) {  // an ID that a stream has chosen itself
      return c;
    }
  }
  return c;
}

void add_once(const std::string& name, std::vector<std::string>& names) {
  if (!name.empty() && std::ranges::find(names, name) == names.end()) names.push_back(name);
}

template <typename Access>
std::string each_once(const std::vector<RunStarted>& headers, Access field) {
  std::vector<std::string> seen;
  for (const RunStarted& header : headers) add_once(std::invoke(field, header), seen);
  return fmt::format("{}", fmt::join(seen, "; "));
}

// Returns the names of the baselines. `compared` says that times were compared with another run: older events do not
// name that run.
std::optional<std::string> baseline_of(const std::vector<RunStarted>& headers, bool compared) {
  std::string named = each_once(headers, [](const RunStarted& run) { return run.baseline.value_or(""); });
  if (!named.empty()) return named;
  return compared ? std::optional<std::string>("the baseline of the run") : std::nullopt;
}

// Returns the implementations of all runs; none if those of a run are unknown.
std::vector<std::string> all_implementations(const std::vector<ReadRun>& runs) {
  std::vector<std::string> all;
  for (const ReadRun& run : runs) {
    if (run.header.implementations.empty()) return {};
    for (const std::string& name : run.header.implementations) add_once(name, all);
  }
  return all;
}

std::string why_unfinished(const ReadRun& run, bool running) {
  if (run.writer) {
    return fmt::format("its run goes on ({}): this case {}", *run.writer,
                       running ? "is running" : "has not started yet");
  }
  return running ? "the run was killed while this case ran" : "the run was killed before this case started";
}

CaseKey key_of(const ReadRun& run, const CaseFinished& event) {
  const std::string implementation = implementation_of(run.header, event);
  return case_key(run.header, event.id, implementation,
                  run.of_id_alone.contains(event.index) ? std::nullopt : std::optional(event.payload));
}

// The shards of one selection.
struct Shards {
  ShardOfRun of;                                          // with the index 0
  std::string title;                                      // of the selection
  std::map<std::size_t, std::set<std::string>> ids = {};  // by the index of the shard

  [[nodiscard]] std::vector<std::string> all_ids() const {
    std::vector<std::string> all;
    for (const auto& [index, of_shard] : ids) all.insert(all.end(), of_shard.begin(), of_shard.end());
    return all;
  }
  // Whether every selected case is in exactly one shard.
  [[nodiscard]] bool add_up() const { return hash_of_all(all_ids()) == of.ids; }
};

std::vector<Shards> selections_of(const std::vector<RunStarted>& runs) {
  std::map<std::tuple<ShardOfRun, std::string, std::string, std::vector<std::string>>, std::size_t> places;
  std::vector<Shards> out;
  for (const RunStarted& run : runs) {
    if (!run.shard) continue;
    ShardOfRun all = *run.shard;
    all.index = 0;
    const auto [place, is_new] = places.try_emplace({all, run.size, run.device, run.implementations}, out.size());
    // "quick" for "quick, shard 1/3 by times 0123"
    if (is_new) out.push_back({.of = all, .title = run.title.substr(0, run.title.find(", shard "))});
    out[place->second].ids[run.shard->index].insert(run.ids.begin(), run.ids.end());
  }
  return out;
}

std::string shards_text(const std::vector<std::size_t>& indices) {
  constexpr std::size_t kMost = 20;
  const std::size_t shown = std::min(indices.size(), kMost);
  std::string text =
      fmt::format("{} {}", indices.size() == 1 ? "shard" : "shards",
                  fmt::join(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < indices.size()) text += fmt::format(" and {} more", indices.size() - shown);
  return text;
}

// `others`: the shards of all selections.
std::string missing_of(const Shards& shards, const std::vector<Shards>& others) {
  std::vector<std::size_t> missing;
  std::vector<std::size_t> elsewhere;  // of these, shards of another selection of the same name
  for (std::size_t index = 1; index <= shards.of.count; ++index) {
    if (shards.ids.contains(index)) continue;
    missing.push_back(index);
    const bool other = std::ranges::any_of(others, [&](const Shards& each) {
      return each.of.count == shards.of.count && each.title == shards.title && each.ids.contains(index);
    });
    if (other) elsewhere.push_back(index);
  }
  const std::vector<std::string> all = shards.all_ids();
  const std::set<std::string> distinct(all.begin(), all.end());
  std::string cases = fmt::format("there are {} of {}", distinct.size(), count_of(shards.of.cases, "case"));
  const bool others_only = missing.empty() && all.size() == shards.of.cases && distinct.size() == all.size();
  if (others_only) cases = "they have cases that were not selected, and lack as many";
  if (all.size() > distinct.size()) cases += fmt::format(", {} in several shards", all.size() - distinct.size());
  if (missing.empty()) return fmt::format("the shards of {} do not add up: {}", shards.title, cases);
  std::string text = fmt::format("{} of {} of {} {} missing: {}", shards_text(missing), shards.of.count, shards.title,
                                 missing.size() == 1 ? "is" : "are", cases);
  if (!elsewhere.empty()) {
    text += fmt::format(" ({} {} of another selection)", shards_text(elsewhere), elsewhere.size() == 1 ? "is" : "are");
  }
  return text;
}

}  // namespace

std::span<const ReadRun> MergedRuns::read(const std::filesystem::path& file, std::string_view what) {
  const std::size_t before = runs_.size();
  const std::optional<std::string> writer = writer_of(file);  // asked first, as the run may end while its file is read
  read_events(file, what, [&](Event event, const auto& at) { take(std::move(event), at); });
  if (runs_.size() == before) refuse_without_run(file);
  end_file(writer);
  return std::span(runs_).subspan(before);
}

void MergedRuns::take(Event event, std::optional<std::chrono::system_clock::time_point> at) {
  if (const auto* header = std::get_if<RunStarted>(&event)) {
    runs_.emplace_back();
    at = header->started;
  }
  if (runs_.empty()) throw std::invalid_argument("the first event is no run_started");
  if (at) {
    first_ = std::min(first_.value_or(*at), *at);
    last_ = std::max(last_.value_or(*at), *at);
  }
  ReadRun& run = runs_.back();
  run.take(event);
  if (const auto* finished = std::get_if<CaseFinished>(&event)) {
    ++run.finished;
    run.indices = std::max(run.indices, finished->index + 1);
    compared_ |= finished->perf && finished->perf->baseline_ms;
    if (!finished->implementation.empty()) overridden_[finished->id] = finished->implementation;
  }
  const bool is_kept = !std::holds_alternative<RunStarted>(event) && !std::holds_alternative<RunFinished>(event);
  const bool is_of_interest_later =
      !std::holds_alternative<CaseProgress>(event) && !std::holds_alternative<RunStopping>(event) &&
      !std::holds_alternative<OutputLost>(event) && !std::holds_alternative<ForkServerTold>(event);
  if (is_kept && is_of_interest_later) run.events.push_back(std::move(event));
}

void MergedRuns::end_file(const std::optional<std::string>& writer) {
  if (runs_.empty() || runs_.back().end || !writer) return;
  runs_.back().writer = writer;
  going_on_.emplace_back(runs_.back().header.title, *writer);
}

void MergedRuns::end_run(ReadRun& run) {
  if (run.end) {
    exact_ &= run.end->ledger_exact && run.end->expanded == run.finished;
    return;
  }
  if (!run.writer && run.left_unknown_cases()) unknown_length_.push_back(run.header.title);
  for (const auto& [id, left] : run.pending) {
    for (std::size_t i = 0; i < left.times; ++i) {
      CaseFinished event;
      event.index = run.indices++;
      event.id = id;
      event.runs = static_cast<int>(run.repeats);
      event.run = static_cast<int>(run.repeats - left.times + i + 1);
      event.payload = left.payload.value_or(case_of_id(id));
      if (!left.payload) run.of_id_alone.insert(event.index);
      const auto by = overridden_.find(id);
      if (by != overridden_.end() && std::ranges::count(run.header.implementations, by->second) > 0) {
        event.implementation = by->second;
      }
      event.reason = why_unfinished(run, i == 0 && left.is_running);
      run.events.emplace_back(std::move(event));
    }
  }
}

// Notes the outcome of each case in the first run that has it, if another run counts. If the first run ran the case
// several times, an outcome that is no success is preferred.
void MergedRuns::note_first_runs() {
  for (std::size_t number = 0; number < runs_.size(); ++number) {
    for (const Event& event : runs_[number].events) {
      const auto* finished = std::get_if<CaseFinished>(&event);
      if (finished == nullptr) continue;
      CaseKey key = key_of(runs_[number], *finished);
      if (counted_.first(key) != number || counted_.counted(key) == number) continue;
      key.case_text.clear();
      // The run may itself be a merged one.
      const FirstRun first =
          finished->first_run.value_or(FirstRun{.outcome = finished->outcome, .reason = finished->reason});
      const auto [known, added] = first_runs_.try_emplace(std::move(key), first);
      if (!added && went_well(known->second.outcome)) known->second = first;
    }
  }
}

void MergedRuns::append(const ReadRun& run, std::size_t number, std::vector<Event>& out) {
  std::map<std::string, int> first_generation = generations_;  // by key, minus 1
  const auto count_on = [&](PoolId& pool) {
    pool.generation += first_generation[pool.key];
    int& last = generations_[pool.key];
    last = std::max(last, pool.generation);
  };
  const auto name_implementation = [&](CaseFinished& event) {
    std::string name = implementation_of(run.header, event);
    if (implementations_.empty() || name != implementations_.front()) event.implementation = std::move(name);
  };
  std::set<std::size_t> elsewhere;  // indices of cases that another run counts for
  std::size_t left = 0;             // cases that the run did not start
  std::size_t left_to_others = 0;   // of these, the cases that another run ran
  for (const Event& event : run.events) {
    const auto* finished = std::get_if<CaseFinished>(&event);
    if (finished == nullptr) continue;
    const bool counts = counted_.counted(key_of(run, *finished)) == number;
    if (!counts) elsewhere.insert(finished->index);
    left += was_reached(finished->outcome) ? 0 : 1;
    left_to_others += !was_reached(finished->outcome) && !counts ? 1 : 0;
  }
  // An interruption no longer counts if reruns ran all cases that it left.
  if (run.end) interrupted_ |= run.end->interrupted && (left == 0 || left_to_others < left);
  const std::chrono::duration<double, std::milli> later = run.header.started - runs_.front().header.started;
  // Makes the event one of all runs. Returns false if it is of a case that another run counts for.
  const auto move_into_all = [&](auto& event) {
    using Kind = std::decay_t<decltype(event)>;
    if constexpr (requires { event.at_ms; }) {
      if (event.at_ms) *event.at_ms += later.count();
    }
    if constexpr (requires { event.pool.generation; }) count_on(event.pool);
    if constexpr (requires { event.pool->generation; }) {
      if (event.pool) count_on(*event.pool);
    }
    if constexpr (requires { event.index; }) {
      if (elsewhere.contains(event.index)) return false;
      if constexpr (std::is_same_v<Kind, CaseFinished>) {
        CaseKey key = key_of(run, event);
        const bool is_rerun = counted_.first(key) != number;
        key.case_text.clear();
        if (is_rerun) event.first_run = first_runs_.at(key);
        ledger_.record(ledger_.expect(), event.outcome, event.flaky);
        ledger_.note_expected(event);
      }
      if constexpr (std::is_base_of_v<CaseFinished, Kind>) name_implementation(event);
      event.index += first_index_;
    }
    return true;
  };
  for (Event event : run.events) {
    if (std::visit(move_into_all, event)) out.push_back(std::move(event));
  }
  first_index_ += run.indices;
}

std::vector<Event> MergedRuns::finish(const Demands& demands) {
  const auto by_start = [](const ReadRun& run) { return run.header.started; };
  std::ranges::stable_sort(runs_, {}, by_start);
  for (std::size_t number = 0; number < runs_.size(); ++number) {
    end_run(runs_[number]);
    for (const Event& event : runs_[number].events) {
      const auto* finished = std::get_if<CaseFinished>(&event);
      if (finished != nullptr) counted_.add(key_of(runs_[number], *finished), number, was_reached(finished->outcome));
    }
  }
  counted_.close();
  note_first_runs();
  implementations_ = all_implementations(runs_);

  std::vector<RunStarted> headers;
  std::vector<Event> out(1);  // the first is replaced by run_started
  double driver_cpu_ms = 0;
  for (std::size_t number = 0; number < runs_.size(); ++number) {
    headers.push_back(runs_[number].header);
    if (const auto& end = runs_[number].end) driver_cpu_ms += end->driver_cpu_ms;
    append(runs_[number], number, out);
  }
  RunStarted header = headers.empty() ? RunStarted{} : headers.front();
  header.title = each_once(headers, &RunStarted::title);
  header.size = each_once(headers, &RunStarted::size);
  header.device = each_once(headers, &RunStarted::device);
  header.version = each_once(headers, &RunStarted::version);
  header.implementations = implementations_;
  header.baseline = baseline_of(headers, compared_);
  if (headers.size() > 1) {  // these belong to one of the runs only
    header.rerun_failed.reset();
    header.earlier_ms.clear();
    header.shard.reset();
  }
  header.cases = ledger_.expected();
  header.started = first_.value_or(header.started);
  RunFinished end = ledger_.close(interrupted_, demands);
  end.ledger_exact &= exact_;
  if (demands.whole) end.incomplete = missing_of_shards(headers);
  end.partial = demands.partial && !end.incomplete.empty();
  end.exit_code = exit_code(end, demands);
  end.driver_cpu_ms = driver_cpu_ms;
  const bool one = runs_.size() == 1 && runs_.front().end;
  end.duration_ms = first_ ? std::chrono::duration<double, std::milli>(*last_ - *first_).count() : 0;
  if (one) end.duration_ms = runs_.front().end->duration_ms;
  out.front() = std::move(header);
  out.emplace_back(end);
  return out;
}

std::vector<std::string> missing_of_shards(const std::vector<RunStarted>& runs) {
  std::vector<std::string> out;
  const std::vector<Shards> selections = selections_of(runs);
  for (const Shards& shards : selections) {
    if (!shards.add_up()) out.push_back(missing_of(shards, selections));
  }
  return out;
}

}  // namespace cp_pool
