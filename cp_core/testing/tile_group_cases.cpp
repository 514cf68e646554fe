#include "cp_core/testing/tile_group_cases.h"

#include <algorithm>
#include <stdexcept>

namespace cp_pool::test {
namespace {

constexpr std::int64_t kInf = kInfiniteWindow;

struct Rectangle {
  std::int64_t q_row = 0;
  std::int64_t k_row = 0;
  std::int64_t m = 0;
  std::int64_t n = 0;
};

struct Window {
  std::int64_t left = kInf;
  std::int64_t right = kInf;
};
constexpr Window kFull{};
constexpr Window kCausal{.left = kInf, .right = 0};

// after: how many rows the tensors have after the last tile.
GroupCase make(std::string name, Window window, const std::vector<Rectangle>& rectangles, std::int64_t after = 0) {
  GroupCase c{.name = std::move(name), .group = {.left = window.left, .right = window.right, .tiles = {}}};
  for (const Rectangle& r : rectangles) {
    c.group.tiles.push_back({.q_row = r.q_row,
                             .k_row = r.k_row,
                             .m = r.m,
                             .n = r.n,
                             .left = window.left,
                             .right = window.right,
                             .sequence = static_cast<std::int64_t>(c.group.tiles.size()),
                             .q_position = 0,
                             .k_position = 0});
    c.q_tokens = std::max(c.q_tokens, r.q_row + r.m + after);
    c.k_tokens = std::max(c.k_tokens, r.k_row + r.n + after);
  }
  return c;
}

// Returns `count` rectangles like `first`, each q_stride and k_stride rows after the one before.
std::vector<Rectangle> batch(std::int64_t count, Rectangle first, std::int64_t q_stride, std::int64_t k_stride) {
  std::vector<Rectangle> rectangles;
  rectangles.reserve(static_cast<std::size_t>(count));
  for (std::int64_t b = 0; b < count; ++b) {
    rectangles.push_back({first.q_row + b * q_stride, first.k_row + b * k_stride, first.m, first.n});
  }
  return rectangles;
}

// Returns more tiles than the kernels take in one launch, of many sizes and with some gaps.
std::vector<Rectangle> many() {
  std::vector<Rectangle> rectangles;
  std::int64_t q_row = 0;
  std::int64_t k_row = 0;
  for (std::int64_t i = 0; i < 300; ++i) {
    const Rectangle r{q_row + (i % 3 == 0 ? 1 : 0), k_row + (i % 5 == 0 ? 2 : 0), 1 + i % 4, 1 + i % 7};
    rectangles.push_back(r);
    q_row = r.q_row + r.m;
    k_row = r.k_row + r.n;
  }
  return rectangles;
}

}  // namespace

std::vector<GroupCase> group_cases() {
  return {
      make("full_square", kFull, {{0, 0, 128, 128}}),
      make("full_odd_inside", kFull, {{5, 3, 37, 53}}, 9),
      make("full_tall", kFull, {{0, 0, 300, 70}}),
      make("causal_square", kCausal, {{0, 0, 256, 256}}),
      make("causal_odd", kCausal, {{0, 0, 131, 131}}),
      make("causal_wide", kCausal, {{0, 0, 96, 200}}),
      make("right_wide", {.left = kInf, .right = 20}, {{0, 0, 100, 150}}),
      make("right_tall", {.left = kInf, .right = 70}, {{0, 0, 200, 150}}),
      make("right_longer_than_keys", {.left = kInf, .right = 270}, {{0, 0, 300, 40}}),
      make("left_wide", {.left = 100, .right = kInf}, {{0, 0, 128, 200}}),
      make("left_tall", {.left = 50, .right = kInf}, {{0, 0, 200, 128}}),
      make("left_much_taller", {.left = 3, .right = kInf}, {{0, 0, 300, 40}}),
      make("band_wide", {.left = 40, .right = 30}, {{0, 0, 128, 160}}),
      make("band_tall", {.left = 20, .right = 90}, {{0, 0, 200, 120}}),
      make("band_causal", {.left = 32, .right = 0}, {{0, 0, 128, 130}}),
      make("band_diagonal", {.left = 0, .right = 0}, {{0, 0, 64, 64}}),
      make("batch_full", kFull, batch(3, {0, 0, 64, 64}, 64, 64)),
      make("batch_full_gaps", kFull, batch(3, {4, 6, 64, 100}, 80, 112), 5),
      make("batch_causal", kCausal, batch(4, {0, 0, 128, 128}, 128, 128)),
      make("batch_causal_gaps", kCausal, batch(3, {0, 8, 60, 72}, 72, 80), 3),
      make("batch_band", {.left = 16, .right = 8}, batch(3, {0, 0, 64, 70}, 64, 70)),
      make("batch_band_gaps", {.left = 16, .right = 8}, batch(3, {2, 0, 64, 70}, 70, 90), 4),
      make("batch_right_tall", {.left = kInf, .right = 60}, batch(2, {0, 0, 100, 50}, 100, 50)),
      make("ragged_full", kFull, {{0, 0, 40, 90}, {40, 90, 130, 20}, {170, 110, 7, 64}}),
      make("ragged_full_gaps", kFull, {{3, 0, 40, 90}, {60, 100, 130, 20}, {190, 121, 7, 64}}, 11),
      make("ragged_causal", kCausal, {{0, 0, 40, 40}, {40, 40, 100, 100}, {140, 140, 2, 7}, {142, 147, 3, 3}}),
      make("ragged_causal_gaps", kCausal, {{2, 5, 40, 50}, {64, 64, 100, 100}, {164, 180, 2, 7}, {170, 187, 30, 31}},
           17),
      make("ragged_band", {.left = 16, .right = 8}, {{0, 0, 50, 60}, {50, 60, 40, 45}, {90, 105, 64, 64}}),
      make("ragged_band_gaps", {.left = 16, .right = 8}, {{0, 4, 50, 60}, {64, 70, 40, 45}, {104, 128, 64, 64}}, 6),
      make("ragged_left_tall", {.left = 10, .right = kInf}, {{0, 0, 90, 40}, {90, 48, 70, 65}}),
      make("ragged_right_tall", {.left = kInf, .right = 60}, {{0, 0, 100, 50}, {104, 50, 90, 40}}),
      make("same_keys", kFull, {{0, 0, 64, 100}, {64, 0, 64, 100}}),
      make("same_keys_ragged", kFull, {{0, 0, 64, 100}, {70, 0, 30, 100}, {100, 100, 20, 30}, {120, 100, 9, 30}}),
      make("keys_out_of_order", kFull, {{0, 130, 50, 60}, {50, 0, 50, 60}, {110, 64, 50, 60}}),
      make("keys_overlap", kCausal, {{0, 0, 50, 90}, {50, 40, 60, 100}, {110, 100, 20, 60}}),
      make("interleaved_keys", kFull, {{0, 0, 10, 40}, {10, 0, 12, 40}, {24, 50, 10, 40}, {34, 50, 12, 40}}),
      make("one_row", kFull, {{0, 0, 1, 77}}),
      make("one_row_batch", kFull, batch(3, {0, 0, 1, 64}, 2, 64)),
      make("one_row_ragged", kFull, {{0, 0, 1, 5}, {1, 5, 1, 33}, {2, 40, 1, 60}}),
      make("one_key", kFull, {{0, 0, 50, 1}}),
      make("one_key_ragged", kFull, {{0, 0, 50, 1}, {50, 2, 3, 1}}),
      make("one_pair", kFull, {{1, 2, 1, 1}}, 2),
      make("many", kFull, many()),
  };
}

GroupCase group_case(const std::string& name) {
  for (GroupCase& c : group_cases()) {
    if (c.name == name) return c;
  }
  throw std::invalid_argument("no group case " + name);
}

}  // namespace cp_pool::test
