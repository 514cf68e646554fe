#include "worker/environment_baseline.h"

#include <cstdlib>
#include <string_view>
#include <unistd.h>

namespace cp_pool {

namespace {

std::map<std::string, std::string> snapshot() {
  std::map<std::string, std::string> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

}  // namespace

EnvironmentBaseline::EnvironmentBaseline() : variables_(snapshot()) {}

void EnvironmentBaseline::restore() const {
  const std::map<std::string, std::string> now = snapshot();
  if (now == variables_) return;
  for (const auto& [name, value] : now) {
    if (!variables_.contains(name)) unsetenv(name.c_str());
  }
  for (const auto& [name, value] : variables_) {
    const auto current = now.find(name);
    if (current == now.end() || current->second != value) setenv(name.c_str(), value.c_str(), 1);
  }
}

}  // namespace cp_pool
