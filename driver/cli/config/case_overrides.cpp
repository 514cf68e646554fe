#include "driver/cli/config/case_overrides.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_error.h"
#include "cases/did_you_mean.h"
#include "worker/protocol/environment.h"

namespace cp_pool {
namespace {

using Kind = ConfigEntry::Kind;

const std::vector<std::string> kKeys{"filter",  "timeout",     "retries", "slots",        "worker",
                                     "adapter", "environment", "xfail",   "xfail-strict", "skip"};
constexpr std::string_view kVariable = "environment.";

// True if the driver itself sets the variable for each rank.
bool is_of_the_driver(std::string_view name) {
  const auto said = protocol::to_variables({});
  return name == protocol::kEnvMasterFd || name == "CUDA_VISIBLE_DEVICES" ||
         std::ranges::any_of(said, [name](const auto& variable) { return variable.first == name; });
}

[[noreturn]] void refuse_entry(const ConfigEntry& entry, const std::string& what) {
  refuse_at(entry.place, fmt::format("override: {}: {}", entry.key, what));
}

// Returns nullptr if the table has no such key.
const ConfigEntry* entry_of(const ConfigTable& table, std::string_view key) {
  const auto entry = std::ranges::find(table.entries, key, &ConfigEntry::key);
  return entry == table.entries.end() ? nullptr : &*entry;
}

void check_key(const ConfigEntry& entry, const WrongWithKey& wrong) {
  if (std::ranges::count(kKeys, entry.key) > 0) return;
  if (wrong(entry.key, "")) {
    refuse_at(entry.place, fmt::format("override: '{}' holds for all cases of a run and not for some; there are {}",
                                       entry.key, join_names(kKeys)));
  }
  refuse_at(entry.place, fmt::format("override: unknown key '{}'{}; there are {}", entry.key,
                                     did_you_mean(entry.key, kKeys), join_names(kKeys)));
}

void add_variable(const ConfigEntry& entry, OwnRanks& ranks) {
  const std::string name = entry.key.substr(kVariable.size());
  if (name.empty() || name.find_first_of(std::string_view("=\0", 2)) != std::string::npos) {
    refuse_entry(entry, "no variable can have this name");
  }
  if (is_of_the_driver(name)) refuse_entry(entry, "cp-pool itself sets it");
  if (entry.kind == Kind::list || entry.kind == Kind::boolean) refuse_entry(entry, "a text or a number is wanted");
  if (entry.values.front().find('\0') != std::string::npos) refuse_entry(entry, "a NUL in the value");
  ranks.environment.push_back(fmt::format("{}={}", name, entry.values.front()));
}

std::vector<Filter> filters_of(const ConfigTable& table) {
  const ConfigEntry* const entry = entry_of(table, "filter");
  if (entry == nullptr || entry->values.empty()) refuse_at(table.place, "override: filter is required");
  std::vector<Filter> filters;
  for (const std::string& text : entry->values) {
    try {
      filters.push_back(Filter::parse(text));
    } catch (const CaseError& e) {
      refuse_at(entry->place, fmt::format("override: {}", e.what()));
    }
  }
  return filters;
}

// Reads xfail or skip: a reason, or `false` if the case is expected to pass after all.
std::optional<Expected> read_expected(const ConfigEntry& entry, CaseOutcome outcome) {
  const std::string& text = entry.values.empty() ? entry.key : entry.values.front();
  if (entry.kind == Kind::boolean && text == "false") return std::nullopt;
  if (entry.kind != Kind::text || text.empty()) refuse_entry(entry, "a reason is wanted, as a text; or false");
  return Expected{.outcome = outcome, .reason = text};
}

void read_expectations(const ConfigTable& table, CaseOverride& out) {
  const ConfigEntry* const xfail = entry_of(table, "xfail");
  const ConfigEntry* const skip = entry_of(table, "skip");
  const ConfigEntry* const strict = entry_of(table, "xfail-strict");
  std::optional<Expected> to_fail;
  if (xfail != nullptr) to_fail = read_expected(*xfail, CaseOutcome::fail);
  if (skip != nullptr) out.expected = read_expected(*skip, CaseOutcome::skip);
  if (to_fail && out.expected) refuse_entry(*skip, "it contradicts xfail");
  if (strict != nullptr) {
    if (strict->kind != Kind::boolean) refuse_entry(*strict, "true or false is wanted");
    if (!to_fail) refuse_entry(*strict, "it needs xfail");
    to_fail->strict = strict->values.front() == "true";
  }
  if (to_fail) out.expected = std::move(to_fail);
  out.says_what_to_expect = xfail != nullptr || skip != nullptr;
}

bool selects(const CaseOverride& each, const MatrixCase& of_matrix) {
  return std::ranges::any_of(each.filters, [&](const Filter& filter) { return filter.matches(of_matrix.subject()); });
}

void add_ranks(const OwnRanks& ranks, std::optional<OwnRanks>& sum) {
  if (ranks == OwnRanks{}) return;
  if (!sum) sum.emplace();
  if (!ranks.worker_command.empty()) static_cast<RankProgram&>(*sum) = ranks;
  for (const std::string& entry : ranks.environment) {
    const std::string name = entry.substr(0, entry.find('=') + 1);
    std::erase_if(sum->environment, [&](const std::string& earlier) { return earlier.starts_with(name); });
    sum->environment.push_back(entry);
  }
  std::ranges::sort(sum->environment);
  if (ranks.slots > 0) sum->slots = ranks.slots;
}

}  // namespace

CaseOverride read_override(const ConfigTable& table, const WrongWithKey& wrong) {
  CaseOverride out{.table = table};
  for (const ConfigEntry& entry : table.entries) {
    if (entry.key.starts_with(kVariable)) {
      add_variable(entry, out.ranks);
      continue;
    }
    check_key(entry, wrong);
    if (entry.key == "environment") refuse_entry(entry, "a table is wanted: {NAME = \"value\"}");
    if (entry.key == "filter") continue;
    if (entry.kind == Kind::list) refuse_entry(entry, "a list, where one value is wanted");
    const std::string& text = entry.values.front();
    const std::optional<std::string> why = wrong(entry.key, text);
    if (!why) continue;
    if (!why->empty()) refuse_entry(entry, *why);
    if (entry.key == "timeout") out.timeout = parse_duration(text);
    if (entry.key == "retries") out.retries = std::stoi(text);
    if (entry.key == "slots") out.ranks.slots = std::stoi(text);
    if (entry.key == "slots" && out.ranks.slots == 0) refuse_entry(entry, "at least 1");
    if (entry.key == "worker") out.worker = WorkerChoice{.command = text};
    if (entry.key == "adapter") out.worker = WorkerChoice{.adapter = text};
  }
  const ConfigEntry* const adapter = entry_of(table, "adapter");
  if (adapter != nullptr && entry_of(table, "worker") != nullptr) refuse_entry(*adapter, "it contradicts worker");
  out.filters = filters_of(table);
  read_expectations(table, out);
  std::ranges::sort(out.ranks.environment);
  return out;
}

void leave_to_file(const OverridesOfRun& overrides, std::vector<std::string>& words) {
  for (const std::string& option : overrides.left_to_file) {
    const auto word = std::ranges::find(words, option);
    if (word != words.end() && word + 1 != words.end()) words.erase(word, word + 2);
  }
  words.insert(words.end(), overrides.rerun_words.begin(), overrides.rerun_words.end());
}

void find_workers(std::vector<CaseOverride>& overrides, const ExecutionOptions& options) {
  for (CaseOverride& each : overrides) {
    if (!each.worker) continue;
    WorkerChoice choice = *each.worker;
    choice.python = options.worker.python;
    set_worker(worker_command(choice), options.fork != "off", each.ranks);
    each.ranks.start_timeout_grows = !choice.adapter.empty();
  }
}

void apply_overrides(const std::vector<CaseOverride>& overrides, const MatrixCase& of_matrix, Item& named) {
  for (const CaseOverride& each : overrides) {
    if (!selects(each, of_matrix)) continue;
    if (each.timeout) named.timeout = each.timeout;
    if (each.retries) named.retries = each.retries;
    if (each.says_what_to_expect) named.expected = each.expected;
    add_ranks(each.ranks, named.ranks);
  }
}

std::optional<Expected> expected_of(const std::vector<CaseOverride>& overrides, const MatrixCase& of_matrix) {
  Item named;
  apply_overrides(overrides, of_matrix, named);
  return named.expected;
}

std::vector<std::string> overrides_of(const std::vector<CaseOverride>& overrides, const MatrixCase& of_matrix) {
  std::vector<std::string> out;
  for (const CaseOverride& each : overrides) {
    if (!selects(each, of_matrix)) continue;
    std::vector<std::string> settings;
    for (const ConfigEntry& entry : each.table.entries) {
      if (entry.key != "filter") settings.push_back(fmt::format("{} = {}", entry.key, fmt::join(entry.values, " ")));
    }
    out.push_back(fmt::format("{}: {}", each.table.place, fmt::join(settings, ", ")));
  }
  return out;
}

}  // namespace cp_pool
