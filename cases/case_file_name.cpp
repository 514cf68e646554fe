#include "cases/case_file_name.h"

#include <cstddef>

#include "cases/text_hash.h"
#include "cases/utf8.h"

namespace cp_pool {
namespace {

// File systems allow names of 255 bytes. Callers append ".rank12.json" and the like.
constexpr std::size_t kMostBytes = 200;

}  // namespace

std::string case_file_name(std::string_view id) {
  std::string name;
  for (const char letter : id) {
    if (letter == '/') {
      name += "__";
    } else {
      name += letter;
    }
  }
  if (name.size() <= kMostBytes) return name;
  const std::string hash = text_hash(id);
  std::size_t kept = kMostBytes - hash.size() - 1;
  while (kept > 0 && !starts_code_point(name[kept])) --kept;
  return name.substr(0, kept) + '-' + hash;
}

}  // namespace cp_pool
