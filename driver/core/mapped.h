// Makes vectors from ranges.
#pragma once

#include <cstddef>
#include <functional>
#include <ranges>
#include <type_traits>
#include <utility>
#include <vector>

namespace cp_pool {

// Returns what the function, or the member, gives for each item of the range.
template <std::ranges::input_range Range, typename Function>
auto mapped(Range&& range, Function function) {
  using Result = std::invoke_result_t<Function&, std::ranges::range_reference_t<Range>>;
  std::vector<std::remove_cvref_t<Result>> out;
  if constexpr (std::ranges::sized_range<Range>) out.reserve(std::ranges::size(range));
  for (auto&& each : range) out.push_back(std::invoke(function, each));
  return out;
}

// Returns the longest stretches [begin, end) of the list in which neighbours are alike.
template <std::ranges::random_access_range List, typename Alike>
std::vector<std::pair<std::size_t, std::size_t>> stretches(const List& list, Alike alike) {
  std::vector<std::pair<std::size_t, std::size_t>> out;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i == 0 || !alike(list[i - 1], list[i])) out.emplace_back(i, i);
    ++out.back().second;
  }
  return out;
}

}  // namespace cp_pool
