// The order in which cases run: `cp-pool run --order`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cp_pool {

struct Order {
  enum class Kind { listed, reverse, shuffle, history };
  Kind kind = Kind::listed;
  std::optional<std::uint64_t> seed = std::nullopt;  // of a shuffle; none = a new one each time
  std::filesystem::path events = {};                 // of a history: an earlier run's; empty: the recorded runs
};

// "listed", "reverse", "shuffle", "shuffle:SEED", "history", "history:FILE"; nullopt for anything else.
std::optional<Order> parse_order(std::string_view text);

// The text that gives the same order again: a shuffle without a seed gets one here.
std::string fix_seed(Order& order);

// The order of count things as indices; of a history history/case_history.h knows it. A shuffle needs its seed, and the
// same seed gives the same order everywhere.
std::vector<std::size_t> ordered_indices(std::size_t count, const Order& order);

// The items at these indices, in their order.
template <typename Item>
std::vector<Item> put_in_order(std::vector<Item> items, const std::vector<std::size_t>& indices) {
  std::vector<Item> out;
  out.reserve(indices.size());
  for (const std::size_t i : indices) out.push_back(std::move(items[i]));
  return out;
}

}  // namespace cp_pool
