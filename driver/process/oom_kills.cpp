#include "driver/process/oom_kills.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace cp_pool {

std::optional<std::int64_t> oom_kills() {
  std::ifstream file("/proc/vmstat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return oom_kills_in(text);
}

std::optional<std::int64_t> oom_kills_in(std::string_view vmstat) {
  constexpr std::string_view kName = "oom_kill ";
  std::size_t at = vmstat.starts_with(kName) ? 0 : vmstat.find("\noom_kill ");
  if (at == std::string_view::npos) return std::nullopt;
  at = vmstat.find(' ', at) + 1;
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(vmstat.data() + at, vmstat.data() + vmstat.size(), count);
  if (error != std::errc{}) return std::nullopt;
  return count;
}

}  // namespace cp_pool
