#include "cp_core/mask.h"

#include "cp_core/integer_math.h"

namespace cp_pool {

Mask make_mask(const Case& c) {
  return {.left = c.window[0], .right = c.causal ? 0 : c.window[1], .chunk = c.chunk};
}

bool visible(const Mask& mask, std::int64_t i, std::int64_t j, std::int64_t sq, std::int64_t skv) {
  const std::int64_t diagonal = i + skv - sq;
  const std::int64_t offset = j - diagonal;
  if (mask.left != kInfiniteWindow && offset < -mask.left) return false;
  if (mask.right != kInfiniteWindow && offset > mask.right) return false;
  return mask.chunk == 0 || floor_div(diagonal, mask.chunk) == floor_div(j, mask.chunk);
}

}  // namespace cp_pool
