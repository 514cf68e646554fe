#include "driver/service/environment.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace cp_pool::service {

std::vector<std::string> what_matters(const Variables& environment) {
  std::vector<std::string> out;
  for (const auto& [name, value] : environment) {
    if (matters_to_ranks(name)) out.push_back(fmt::format("{}={}", name, value));
  }
  return out;
}

Variables with_what_matters(const Variables& base, const std::vector<std::string>& entries) {
  Variables out;
  std::ranges::copy_if(base, std::back_inserter(out),
                       [](const auto& variable) { return !matters_to_ranks(variable.first); });
  for (const std::string& entry : entries) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0 || entry.find('\0') != std::string::npos) {
      throw std::invalid_argument(fmt::format("'{}' is no NAME=VALUE", entry));
    }
    std::string name = entry.substr(0, equals);
    if (!matters_to_ranks(name)) continue;
    out.emplace_back(std::move(name), entry.substr(equals + 1));
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace cp_pool::service
