#include "driver/cli/duration.h"

#include <array>
#include <charconv>
#include <cmath>
#include <ratio>
#include <utility>

#include <fmt/format.h>

#include "driver/core/run.h"

namespace cp_pool {

namespace {

constexpr double kLongestMs = std::chrono::duration<double, std::milli>(kLongestDuration).count();
constexpr std::array<std::pair<std::string_view, double>, 5> kUnitsMs{
    {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"h", 3600 * 1000}}};

}  // namespace

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(value) || std::signbit(value)) return std::nullopt;
  for (const auto& [unit, factor] : kUnitsMs) {
    if (unit != std::string_view(rest, static_cast<std::size_t>(end - rest))) continue;
    const double milliseconds = std::round(value * factor);
    if (milliseconds > kLongestMs) return std::nullopt;
    return std::chrono::milliseconds{static_cast<std::int64_t>(milliseconds)};
  }
  return std::nullopt;
}

std::string duration_text(std::chrono::milliseconds duration) {
  if (duration.count() % 1000 == 0) return fmt::format("{}s", duration.count() / 1000);
  return fmt::format("{}ms", duration.count());
}

}  // namespace cp_pool
