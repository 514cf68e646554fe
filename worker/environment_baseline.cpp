#include "worker/environment_baseline.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <unistd.h>

namespace cp_pool {

namespace {

// Returns the "NAME=value" entries in the order of the environment.
std::vector<std::string_view> entries() {
  std::vector<std::string_view> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) out.emplace_back(*entry);
  return out;
}

template <typename Entries>
std::map<std::string, std::string> variables_of(const Entries& entries) {
  std::map<std::string, std::string> out;
  for (const std::string_view text : entries) {
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

}  // namespace

EnvironmentBaseline::EnvironmentBaseline() {
  const std::vector<std::string_view> now = entries();
  entries_.assign(now.begin(), now.end());
}

void EnvironmentBaseline::restore() const {
  const std::vector<std::string_view> now_entries = entries();
  if (std::ranges::equal(now_entries, entries_)) return;
  const std::map<std::string, std::string> now = variables_of(now_entries);
  const std::map<std::string, std::string> before = variables_of(entries_);
  for (const auto& [name, value] : now) {
    if (!before.contains(name)) unsetenv(name.c_str());
  }
  for (const auto& [name, value] : before) {
    const auto current = now.find(name);
    if (current == now.end() || current->second != value) setenv(name.c_str(), value.c_str(), 1);
  }
}

}  // namespace cp_pool
