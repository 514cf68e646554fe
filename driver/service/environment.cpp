#include "driver/service/environment.h"

#include <algorithm>
#include <stdexcept>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/rank_environment.h"

namespace cp_pool::service {

bool matters(std::string_view name) {
  return matters_to_ranks(name);
}

Variables own_environment() {
  Variables out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text{*entry};
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    out.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  std::ranges::sort(out);
  return out;
}

std::vector<std::string> what_matters(const Variables& environment) {
  std::vector<std::string> out;
  for (const auto& [name, value] : environment) {
    if (matters(name)) out.push_back(fmt::format("{}={}", name, value));
  }
  return out;
}

Variables with_what_matters(const Variables& base, const std::vector<std::string>& entries) {
  Variables out;
  std::ranges::copy_if(base, std::back_inserter(out), [](const auto& variable) { return !matters(variable.first); });
  for (const std::string& entry : entries) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0 || entry.find('\0') != std::string::npos) {
      throw std::invalid_argument(fmt::format("'{}' is no NAME=VALUE", entry));
    }
    std::string name = entry.substr(0, equals);
    if (!matters(name)) continue;
    out.emplace_back(std::move(name), entry.substr(equals + 1));
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace cp_pool::service
