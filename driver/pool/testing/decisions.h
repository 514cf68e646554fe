// The decisions of a scheduler: those of one kind, or all in words.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/pool/scheduler.h"

namespace cp_pool::fleet_test {

template <typename T>
std::vector<T> all(const std::vector<Decision>& decisions) {
  std::vector<T> out;
  for (const Decision& decision : decisions) {
    if (const auto* d = std::get_if<T>(&decision)) out.push_back(*d);
  }
  return out;
}

inline std::string word(const StartPool& start) {
  return fmt::format("start {} of key {} on {}{}", start.pool, start.key, fmt::join(start.slots, " "),
                     start.early ? " early" : "");
}
inline std::string word(const RetirePool& retire) {
  return fmt::format("retire {}", retire.pool);
}
inline std::string word(const SendCase& send) {
  return fmt::format("case {} on {}", send.index, send.pool);
}

// "retire 1, start 2 of key 0 on 0 1, case 3 on 4"; "nothing" if there are none.
inline std::string in_words(const std::vector<Decision>& decisions) {
  std::vector<std::string> out;
  for (const Decision& decision : decisions) {
    out.push_back(std::visit([](const auto& d) { return word(d); }, decision));
  }
  return out.empty() ? "nothing" : fmt::format("{}", fmt::join(out, ", "));
}

}  // namespace cp_pool::fleet_test
