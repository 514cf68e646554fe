// A snapshot of the process environment, taken when the ranks have been connected and restored before every case.
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

namespace cp_pool {

class EnvironmentBaseline {
 public:
  // Undoes every setenv, putenv and unsetenv since the snapshot. Leaves unchanged variables alone.
  void restore() const {
    const std::vector<std::string> entries = read_entries();
    if (entries == entries_) return;
    const std::map<std::string, std::string> now = variables(entries);
    const std::map<std::string, std::string> before = variables(entries_);
    for (const auto& [name, value] : now) {
      if (!before.contains(name)) unsetenv(name.c_str());
    }
    for (const auto& [name, value] : before) {
      const auto current = now.find(name);
      if (current == now.end() || current->second != value) setenv(name.c_str(), value.c_str(), 1);
    }
  }

 private:
  static std::vector<std::string> read_entries() {
    std::vector<std::string> out;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) out.emplace_back(*entry);
    return out;
  }
  static std::map<std::string, std::string> variables(const std::vector<std::string>& entries) {
    std::map<std::string, std::string> out;
    for (const std::string& entry : entries) {
      const std::size_t equals = entry.find('=');
      if (equals != std::string::npos) out.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    }
    return out;
  }

  std::vector<std::string> entries_ = read_entries();
};

}  // namespace cp_pool
