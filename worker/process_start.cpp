#include "worker/process_start.h"

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace cp_pool {

std::optional<std::int64_t> start_ticks_in(std::string_view stat) {
  // Field 2, the name, may contain blanks and parentheses, and ends at the last ')'.
  const std::size_t end_of_name = stat.rfind(')');
  if (end_of_name == std::string_view::npos) return std::nullopt;
  std::istringstream after_name{std::string{stat.substr(end_of_name + 1)}};
  constexpr int kFieldsBefore = 19;  // fields 3 to 21
  std::string skipped;
  for (int i = 0; i < kFieldsBefore; ++i) after_name >> skipped;
  std::int64_t ticks = 0;
  return after_name >> ticks ? std::optional(ticks) : std::nullopt;
}

std::optional<std::int64_t> own_start_ticks() {
  std::ifstream file("/proc/self/stat");
  return start_ticks_in(std::string{std::istreambuf_iterator<char>(file), {}});
}

}  // namespace cp_pool
