// The order in which cases run: `cp-pool run --order`.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cp_pool {

struct Order {
  enum class Kind { listed, reverse, shuffle };
  Kind kind = Kind::listed;
  std::optional<std::uint64_t> seed;  // of a shuffle; none = a new one each time
};

// "listed", "reverse", "shuffle", "shuffle:SEED"; nullopt for anything else.
std::optional<Order> parse_order(std::string_view text);

// The text that gives the same order again: a shuffle without a seed gets one here.
std::string fix_seed(Order& order);

// The order of count things as indices. A shuffle needs its seed, and the same seed gives the same order everywhere.
std::vector<std::size_t> ordered_indices(std::size_t count, const Order& order);

template <typename Item>
std::vector<Item> put_in_order(std::vector<Item> items, const Order& order) {
  std::vector<Item> out;
  out.reserve(items.size());
  for (const std::size_t i : ordered_indices(items.size(), order)) out.push_back(std::move(items[i]));
  return out;
}

}  // namespace cp_pool
