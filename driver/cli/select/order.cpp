#include "driver/cli/select/order.h"

#include <algorithm>
#include <charconv>
#include <random>

#include <fmt/format.h>

namespace cp_pool {

std::optional<Order> parse_order(std::string_view text) {
  constexpr std::string_view kShuffle = "shuffle";
  constexpr std::string_view kHistory = "history:";
  if (text == "listed") return Order{};
  if (text == "reverse") return Order{.kind = Order::Kind::reverse};
  if (text == kShuffle) return Order{.kind = Order::Kind::shuffle};
  if (text == "history") return Order{.kind = Order::Kind::history};
  if (text.starts_with(kHistory) && text.size() > kHistory.size()) {
    return Order{.kind = Order::Kind::history, .events = text.substr(kHistory.size())};
  }
  if (!text.starts_with("shuffle:")) return std::nullopt;
  text.remove_prefix(kShuffle.size() + 1);
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return Order{.kind = Order::Kind::shuffle, .seed = seed};
}

std::string fix_seed(Order& order) {
  switch (order.kind) {
    case Order::Kind::listed:
      return "listed";
    case Order::Kind::reverse:
      return "reverse";
    case Order::Kind::history:
      return order.events.empty() ? "history" : fmt::format("history:{}", order.events.string());
    case Order::Kind::shuffle:
      break;
  }
  if (!order.seed) order.seed = std::random_device{}();
  return fmt::format("shuffle:{}", *order.seed);
}

std::vector<std::size_t> ordered_indices(std::size_t count, const Order& order) {
  std::vector<std::size_t> indices(count);
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  if (order.kind == Order::Kind::reverse) std::ranges::reverse(indices);
  if (order.kind == Order::Kind::shuffle) {
    // Fisher-Yates by hand, since std::shuffle and the standard distributions draw other numbers in other libraries.
    std::mt19937_64 engine{order.seed.value()};
    for (std::size_t i = count; i > 1; --i) std::swap(indices[i - 1], indices[engine() % i]);
  }
  return indices;
}

}  // namespace cp_pool
