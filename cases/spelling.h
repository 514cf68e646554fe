// Names as the source spells them: of members for the fields of a struct, of enumerators for the names of an
// enumeration.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace cp_pool {

// The name of a member (&Struct::name) or of an enumerator, without what qualifies it.
template <auto Named>
consteval std::string_view spelling_of() {
  std::string_view text =
      __PRETTY_FUNCTION__;  // "..Named = &Struct::name; .." of g++, "..Named = &Struct::name]" of clang
  text = text.substr(0, text.find_first_of(";]", text.find("Named = ")));
  return text.substr(text.rfind(':') + 1);
}

// The same as characters that a zero ends, with `separator` in the place of each '_'.
template <auto Named, char separator = '_'>
inline constexpr auto kSpelling = [] {
  std::array<char, spelling_of<Named>().size() + 1> out{};
  std::ranges::replace_copy(spelling_of<Named>(), out.begin(), '_', separator);
  return out;
}();

}  // namespace cp_pool
