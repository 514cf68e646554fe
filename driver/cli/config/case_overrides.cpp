#include "driver/cli/config/case_overrides.h"

#include <algorithm>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/did_you_mean.h"
#include "driver/cli/command_error.h"
#include "driver/cli/duration.h"

namespace cp_pool {

namespace {

const std::vector<std::string> kKeys{"filter", "timeout", "xfail.reason", "xfail.strict", "skip.reason"};

// What the pools of a run are made with, or its rules: no case has its own. The first word of a key, of several names.
const std::vector<std::string> kOfWholeRuns{"worker", "adapter", "slots", "gpus", "env", "environment", "retries"};

[[noreturn]] void refuse_at(const std::string& place, const std::string& what) {
  throw CommandError(ExitCode::usage, fmt::format("{}: {}", place, what));
}

// nullptr: there is none.
const ConfigEntry* entry_of(const ConfigTable& table, const std::string& key) {
  const auto entry = std::ranges::find(table.entries, key, &ConfigEntry::key);
  return entry == table.entries.end() ? nullptr : &*entry;
}

// Throws CommandError (usage).
void check_entry(const ConfigEntry& entry) {
  if (std::ranges::count(kOfWholeRuns, entry.key.substr(0, entry.key.find('.'))) > 0) {
    refuse_at(entry.place, fmt::format("override: '{}' holds for all cases of a run and not for some; there are {}",
                                       entry.key, join_names(kKeys)));
  }
  if (std::ranges::count(kKeys, entry.key) == 0) {
    refuse_at(entry.place, fmt::format("override: unknown key '{}'{}; there are {}", entry.key,
                                       did_you_mean(entry.key, kKeys), join_names(kKeys)));
  }
  using Kind = ConfigEntry::Kind;
  const bool flag = entry.key == "xfail.strict";
  if (flag != (entry.kind == Kind::boolean)) {
    refuse_at(entry.place, fmt::format("override: {}: {} is wanted", entry.key, flag ? "true or false" : "a text"));
  }
  if (entry.kind == Kind::list) refuse_at(entry.place, fmt::format("override: {}: a list", entry.key));
  if (entry.values.front().empty()) refuse_at(entry.place, fmt::format("override: {}: it is empty", entry.key));
}

}  // namespace

std::vector<CaseOverride> read_overrides(
    const std::vector<ConfigTable>& tables,
    const std::function<std::string(const std::string& key, const std::string& value)>& wrong,
    const std::function<bool(const std::string& key)>& is_told) {
  std::vector<CaseOverride> out;
  for (const ConfigTable& table : tables) {
    for (const ConfigEntry& entry : table.entries) check_entry(entry);
    const ConfigEntry* filter = entry_of(table, "filter");
    if (filter == nullptr) refuse_at(table.place, "override: filter is required");
    const auto parsed = [&] {
      try {
        return Filter::parse(filter->values.front());
      } catch (const CaseError& e) {
        refuse_at(filter->place, fmt::format("override: {}", e.what()));
      }
    };
    CaseOverride& each = out.emplace_back(CaseOverride{parsed(), std::nullopt, std::nullopt, std::nullopt});
    if (const ConfigEntry* timeout = entry_of(table, "timeout")) {
      const std::string& text = timeout->values.front();
      if (const std::string why = wrong("timeout", text); !why.empty()) {
        refuse_at(timeout->place, fmt::format("override: timeout: {}", why));
      }
      if (!is_told("timeout")) each.timeout = parse_duration(text);
    }
    const ConfigEntry* reason = entry_of(table, "xfail.reason");
    const ConfigEntry* strict = entry_of(table, "xfail.strict");
    if (strict != nullptr && reason == nullptr) refuse_at(strict->place, "override: xfail: reason is required");
    if (reason != nullptr) {
      each.expected = ExpectedFailure{.reason = reason->values.front(),
                                      .strict = strict != nullptr && strict->values.front() == "true"};
    }
    if (const ConfigEntry* skip = entry_of(table, "skip.reason")) each.skip = skip->values.front();
  }
  return out;
}

void apply_overrides(const std::vector<CaseOverride>& overrides, const MatrixCase& of_matrix, NamedCase& named) {
  const FilterSubject subject{.c = of_matrix.c, .tags = of_matrix.tags, .id = of_matrix.id, .size = of_matrix.size};
  for (const CaseOverride& each : overrides) {
    if (!each.filter.matches(subject)) continue;
    if (!named.timeout) named.timeout = each.timeout;
    if (!named.expected) named.expected = each.expected;
    if (!named.skip) named.skip = each.skip;
  }
}

}  // namespace cp_pool
