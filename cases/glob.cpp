#include "cases/glob.h"

#include <cstddef>

namespace cp_pool {

bool glob_matches(std::string_view glob, std::string_view text) {
  // Greedy matching that goes back to the last star only: linear in practice, quadratic at worst.
  std::size_t g = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;  // place of the last star passed in the glob
  std::size_t star_text = 0;                  // where the text after that star's match begins
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      star_text = t;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == text[t])) {
      ++g;
      ++t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  return glob.find_first_not_of('*', g) == std::string_view::npos;
}

bool has_wildcard(std::string_view glob) {
  return glob.find_first_of("*?") != std::string_view::npos;
}

}  // namespace cp_pool
