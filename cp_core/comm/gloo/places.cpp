#include "cp_core/comm/gloo/places.h"

#include <array>
#include <optional>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace cp_pool {

namespace {

// The text between `begin` and the next ']'.
std::optional<std::string> bracketed(std::string_view text, std::string_view begin) {
  const std::size_t at = text.find(begin);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + begin.size());
  return std::string(text.substr(0, text.find(']')));
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string key_of(int rank) {
  return fmt::format("place/{}", rank);
}

}  // namespace

void tell_place(c10d::Store& store, int rank, const std::string& device) {
  if (const auto address = bracketed(device, "addr=[")) store.set(key_of(rank), *address + " " + host_name());
}

std::string unreached(c10d::Store& store, int size, const std::string& error) {
  const auto address = bracketed(error, "remote=[");
  if (!address) return "";
  std::vector<int> ranks;
  std::string host;
  for (int rank = 0; rank < size; ++rank) {
    if (!store.check({key_of(rank)})) continue;
    const std::string place = store.get_to_str(key_of(rank));
    const std::size_t space = place.find(' ');
    if (place.substr(0, space) != *address) continue;
    ranks.push_back(rank);
    host = place.substr(space + 1);
  }
  if (ranks.empty()) return "";
  return fmt::format("host {} cannot reach {} {} on host {} ({})", host_name(), ranks.size() == 1 ? "rank" : "ranks",
                     fmt::join(ranks, ", "), host, *address);
}

}  // namespace cp_pool
