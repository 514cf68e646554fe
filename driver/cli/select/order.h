// The order in which cases run: `cp-pool run --order`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/core/mapped.h"

namespace cp_pool {

struct Order {
  enum class Kind { listed, reverse, shuffle, history };
  std::string text = "listed";  // as given
  Kind kind = Kind::listed;
  std::optional<std::uint64_t> seed = std::nullopt;  // of a shuffle; nullopt means a new one each time
  std::filesystem::path events = {};  // of a history: the events file of an earlier run; empty means the recorded runs
};

// Reads "listed", "reverse", "shuffle", "shuffle:SEED", "history" or "history:FILE". Returns nullopt for anything else.
std::optional<Order> parse_order(std::string_view text);

// Returns the text that gives the same order again. A shuffle without a seed gets one here.
std::string fix_seed(Order& order);

// Returns the order of `count` items as indices; for `history` see history/case_history.h. A shuffle needs its seed;
// the same seed gives the same order on every machine.
std::vector<std::size_t> ordered_indices(std::size_t count, const Order& order);

// Returns the items at these indices, in the order of the indices.
template <typename Item>
std::vector<Item> reordered(std::vector<Item> items, const std::vector<std::size_t>& indices) {
  return mapped(indices, [&](std::size_t i) { return std::move(items[i]); });
}

}  // namespace cp_pool
