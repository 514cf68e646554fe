#include "cases/case_groups.h"

#include <fmt/format.h>

#include "cases/lengths.h"

namespace cp_pool {

Case case_of_group(const Case& c, int group) {
  Case own = c;
  if (c.group == 1) return own;
  own.seed += static_cast<std::uint64_t>(group);
  if (c.layout != Layout::thd) return own;
  // The lengths are made explicit, because they would otherwise be drawn from the group's own seed.
  const SequenceLengths lengths = resolve_lengths(c);
  if (!keys_like_queries(c)) own.seqlens_kv = lengths.valid_kv;
  own.seqlens = lengths.valid_q;
  return own;
}

std::string group_suffix(int group) {
  return group == 0 ? std::string() : fmt::format(".group{}", group);
}

}  // namespace cp_pool
