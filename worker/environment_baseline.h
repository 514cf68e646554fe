// A snapshot of the process environment, taken when the ranks have been connected and restored before every case.
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <unistd.h>

namespace cp_pool {

class EnvironmentBaseline {
 public:
  // Undoes every setenv, putenv and unsetenv since the snapshot. Leaves unchanged variables alone.
  void restore() const {
    const std::map<std::string, std::string> now = variables();
    for (const auto& [name, value] : now) {
      if (!variables_.contains(name)) unsetenv(name.c_str());
    }
    for (const auto& [name, value] : variables_) {
      const auto current = now.find(name);
      if (current == now.end() || current->second != value) setenv(name.c_str(), value.c_str(), 1);
    }
  }

 private:
  static std::map<std::string, std::string> variables() {
    std::map<std::string, std::string> out;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string_view text = *entry;
      const std::size_t equals = text.find('=');
      if (equals != std::string_view::npos) out.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    return out;
  }

  std::map<std::string, std::string> variables_ = variables();
};

}  // namespace cp_pool
