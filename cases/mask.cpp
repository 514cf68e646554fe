#include "cases/mask.h"

#include <algorithm>

#include "cases/integer_math.h"

namespace cp_pool {

Mask make_mask(const Case& c) {
  return {.left = c.window[0], .right = c.causal ? 0 : c.window[1], .chunk = c.chunk};
}

Interval visible_keys(const Mask& mask, std::int64_t i, std::int64_t sq, std::int64_t skv) {
  if (i < 0 || i >= sq) return {};
  const std::int64_t diagonal = i + skv - sq;
  Interval keys{.begin = 0, .end = skv};
  if (mask.left != kInfiniteWindow) keys.begin = std::max(keys.begin, diagonal - mask.left);
  if (mask.right != kInfiniteWindow) keys.end = std::min(keys.end, diagonal + mask.right + 1);
  if (mask.chunk > 0) {
    const std::int64_t begin = floor_div(diagonal, mask.chunk) * mask.chunk;
    keys = intersect(keys, {.begin = begin, .end = begin + mask.chunk});
  }
  return keys;
}

bool visible(const Mask& mask, std::int64_t i, std::int64_t j, std::int64_t sq, std::int64_t skv) {
  const Interval keys = visible_keys(mask, i, sq, skv);
  return j >= keys.begin && j < keys.end;
}

}  // namespace cp_pool
