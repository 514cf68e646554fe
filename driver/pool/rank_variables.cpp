#include "driver/pool/rank_variables.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>

#include <fmt/format.h>

#include "driver/rank_environment.h"

namespace cp_pool {

std::string random_tag() {
  std::random_device random;
  std::array<unsigned, 4> w{};
  for (unsigned& word : w) word = random();
  return fmt::format("{:08x}-{:04x}-4{:03x}-{:04x}-{:04x}{:08x}", w[0], w[1] >> 16U, w[1] & 0xFFFU,
                     ((w[2] >> 16U) & 0x3FFFU) | 0x8000U, w[2] & 0xFFFFU, w[3]);
}

void add_wait_policy(std::vector<std::pair<std::string, std::string>>& variables, const Surroundings* surroundings) {
  constexpr const char* kWaitPolicy = "OMP_WAIT_POLICY";
  const auto is_it = [](const auto& variable) { return variable.first == kWaitPolicy; };
  const bool has_it = surroundings == nullptr ? std::getenv(kWaitPolicy) != nullptr
                                              : std::ranges::any_of(surroundings->environment, is_it);
  if (!has_it) variables.emplace_back(kWaitPolicy, "passive");
}

std::vector<std::string> inherited_variables(const Surroundings* surroundings) {
  std::vector<std::string> out;
  for (const auto& [name, value] : surroundings != nullptr ? surroundings->environment : own_environment()) {
    if (matters_to_ranks(name)) out.push_back(name);
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace cp_pool
