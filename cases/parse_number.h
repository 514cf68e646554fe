#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace cp_pool {

// Reads a number that is the whole text; nullopt for any other text. base: of an integer.
template <typename Number>
std::optional<Number> parse_number(std::string_view text, std::same_as<int> auto... base) {
  Number value{};
  const char* const text_end = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), text_end, value, base...);
  return error == std::errc{} && end == text_end ? std::optional(value) : std::nullopt;
}

}  // namespace cp_pool
