#include "driver/cli/select/order.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "driver/cli/option_kinds.h"

namespace cp_pool {

std::optional<Order> parse_order(std::string_view text) {
  constexpr std::string_view kHistory = "history:";
  constexpr std::string_view kShuffle = "shuffle:";
  Order order{.text = std::string(text)};
  if (text == "listed") return order;
  order.kind = text == "reverse"             ? Order::Kind::reverse
               : text.starts_with("shuffle") ? Order::Kind::shuffle
                                             : Order::Kind::history;
  if (text == "reverse" || text == "shuffle" || text == "history") return order;
  if (text.starts_with(kHistory) && text.size() > kHistory.size()) {
    order.events = text.substr(kHistory.size());
    return order;
  }
  if (text.starts_with(kShuffle)) order.seed = parse_number<std::uint64_t>(text.substr(kShuffle.size()));
  return order.seed ? std::optional(order) : std::nullopt;
}

std::string fix_seed(Order& order) {
  if (order.kind != Order::Kind::shuffle) return order.text;
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
