// In which order the cases of a run are sent: a case that depends on what ran before it shows when the order changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace cp_pool {

struct Order {
  enum class Kind { listed, reverse, shuffle };
  Kind kind = Kind::listed;
  std::uint64_t seed = 1234;  // of shuffle
  bool operator==(const Order&) const = default;
};

// "listed", "reverse", "shuffle" or "shuffle:SEED"; nullopt for anything else.
std::optional<Order> parse_order(std::string_view text);

// Every index below size once. A shuffle depends on size and seed alone: the same on every machine.
std::vector<std::size_t> indices_in_order(std::size_t size, const Order& order);

}  // namespace cp_pool
