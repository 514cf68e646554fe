#include "driver/order.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <random>
#include <utility>

namespace cp_pool {

std::optional<Order> parse_order(std::string_view text) {
  constexpr std::string_view kSeeded = "shuffle:";
  if (text == "listed") return Order{Order::Kind::listed};
  if (text == "reverse") return Order{Order::Kind::reverse};
  if (text == "shuffle") return Order{Order::Kind::shuffle};
  if (!text.starts_with(kSeeded)) return std::nullopt;
  text.remove_prefix(kSeeded.size());
  Order order{Order::Kind::shuffle};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, order.seed);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return order;
}

std::vector<std::size_t> indices_in_order(std::size_t size, const Order& order) {
  std::vector<std::size_t> out(size);
  std::iota(out.begin(), out.end(), std::size_t{0});
  if (order.kind == Order::Kind::reverse) std::ranges::reverse(out);
  if (order.kind != Order::Kind::shuffle) return out;
  // Not std::shuffle, which may differ between standard libraries.
  std::mt19937_64 random(order.seed);
  for (std::size_t i = size; i > 1; --i) std::swap(out[i - 1], out[random() % i]);
  return out;
}

}  // namespace cp_pool
