// Makes a vector of what a function, or a member, gives for each item of a range.
#pragma once

#include <functional>
#include <ranges>
#include <type_traits>
#include <vector>

namespace cp_pool {

template <std::ranges::input_range Range, typename Function>
auto mapped(Range&& range, Function function) {
  using Result = std::invoke_result_t<Function&, std::ranges::range_reference_t<Range>>;
  std::vector<std::remove_cvref_t<Result>> out;
  if constexpr (std::ranges::sized_range<Range>) out.reserve(std::ranges::size(range));
  for (auto&& each : range) out.push_back(std::invoke(function, each));
  return out;
}

}  // namespace cp_pool
