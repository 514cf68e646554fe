#include "cases/mask.h"

namespace cp_pool {

Mask make_mask(const Case& c) {
  return {.left = c.window[0], .right = c.causal ? 0 : c.window[1], .chunk = c.chunk, .slices = c.mask};
}

namespace {

Interval within_window(const Mask& mask, std::int64_t i, std::int64_t sq, std::int64_t skv) {
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

}  // namespace

Interval visible_keys(const MaskSlice& slice, std::int64_t i) {
  if (i < slice.queries.begin || i >= slice.queries.end) return {};
  Interval keys = slice.keys;
  const bool both = slice.type == SliceType::bicausal;
  if (both || slice.type == SliceType::inverse_causal) keys.begin += i - slice.queries.begin;
  if (both || slice.type == SliceType::causal) keys.end -= slice.queries.end - 1 - i;
  return keys;
}

std::vector<Interval> visible_keys(const Mask& mask, std::int64_t i, std::int64_t sq, std::int64_t skv) {
  std::vector<Interval> ranges;
  const auto add = [&ranges](const Interval& keys) {
    if (keys.size() > 0) ranges.push_back(keys);
  };
  if (i < 0 || i >= sq) return ranges;
  if (mask.slices.empty()) add(within_window(mask, i, sq, skv));
  for (const MaskSlice& slice : mask.slices) add(intersect(visible_keys(slice, i), {.begin = 0, .end = skv}));
  return ranges;
}

std::int64_t count_visible(const Mask& mask, std::int64_t i, const Interval& keys, std::int64_t sq, std::int64_t skv) {
  std::int64_t count = 0;
  for (const Interval& seen : visible_keys(mask, i, sq, skv)) count += intersect(seen, keys).size();
  return count;
}

bool visible(const Mask& mask, std::int64_t i, std::int64_t j, std::int64_t sq, std::int64_t skv) {
  return count_visible(mask, i, {.begin = j, .end = j + 1}, sq, skv) > 0;
}

}  // namespace cp_pool
