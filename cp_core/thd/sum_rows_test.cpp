#include "cp_core/thd/sum_rows.h"

#include <algorithm>
#include <random>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/thd/row_segments.h"

namespace cp_pool {
namespace {

constexpr std::int64_t kSumRows = 60;

std::int64_t draw_row(std::mt19937_64& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

// Returns a part with disjoint targets in any order and sources anywhere. Some ranges may be empty.
SomeRows random_part(std::mt19937_64& random, at::ScalarType dtype) {
  std::vector<std::int64_t> cuts(8);
  for (std::int64_t& cut : cuts) cut = draw_row(random, 0, kSumRows);
  std::ranges::sort(cuts);
  SomeRows part{.tensor = at::randn({kSumRows, 3, 5}).to(dtype), .rows = {}};
  for (std::size_t i = 0; i < cuts.size(); i += 2) {
    const std::int64_t count = cuts[i + 1] - cuts[i];
    part.rows.push_back({.source = draw_row(random, 0, kSumRows - count), .target = cuts[i], .count = count});
  }
  std::ranges::shuffle(part.rows, random);
  return part;
}

// Computes the expected sum part by part, on whole tensors.
at::Tensor expected_sum(const at::Tensor& start, const std::vector<SomeRows>& parts) {
  const at::Tensor total = start.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  for (const SomeRows& part : parts) {
    for (const RowCopy& range : part.rows) {
      total.narrow(0, range.target, range.count).add_(part.tensor.narrow(0, range.source, range.count).to(at::kFloat));
    }
  }
  return total.to(start.scalar_type());
}

struct Types {
  at::ScalarType sum;
  at::ScalarType part;
};

class SumRows : public testing::TestWithParam<Types> {};

TEST_P(SumRows, AddsPartsInOrderAndRoundsOnce) {
  std::mt19937_64 random(1);
  for (int count = 0; count < 7; ++count) {
    SCOPED_TRACE(count);
    std::vector<SomeRows> parts;
    for (int i = 0; i < count; ++i) parts.push_back(random_part(random, GetParam().part));
    at::Tensor sum = at::randn({kSumRows, 3, 5}).to(GetParam().sum);
    const at::Tensor expected = expected_sum(sum, parts);
    add_rows(sum, parts);
    EXPECT_TRUE(at::equal(sum, expected));
  }
}

TEST_P(SumRows, WritesEveryRowOfASumOfPartsAlone) {
  std::mt19937_64 random(2);
  for (int count = 0; count < 7; ++count) {
    SCOPED_TRACE(count);
    std::vector<SomeRows> parts;
    for (int i = 0; i < count; ++i) parts.push_back(random_part(random, GetParam().part));
    at::Tensor sum = at::full({kSumRows, 3, 5}, 7.0, GetParam().sum);
    sum_rows(sum, parts);
    EXPECT_TRUE(at::equal(sum, expected_sum(at::zeros({kSumRows, 3, 5}, GetParam().sum), parts)));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, SumRows,
                         testing::Values(Types{at::kFloat, at::kFloat}, Types{at::kFloat, at::kBFloat16},
                                         Types{at::kBFloat16, at::kBFloat16}, Types{at::kBFloat16, at::kFloat},
                                         Types{at::kHalf, at::kHalf}),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param.part)) + "Into" + c10::toString(info.param.sum);
                         });

TEST(SumRowsOfSeveralDtypes, AreRefused) {
  at::Tensor sum = at::zeros({2, 1, 1});
  const RowCopy all{.source = 0, .target = 0, .count = 2};
  const std::vector<SomeRows> parts{{.tensor = at::zeros({2, 1, 1}), .rows = {all}},
                                    {.tensor = at::zeros({2, 1, 1}, at::kHalf), .rows = {all}}};
  EXPECT_THROW(add_rows(sum, parts), c10::Error);
}

// Lists for each segment its target, its count, and for each of its terms the part and the source row.
std::vector<std::vector<std::int64_t>> as_numbers(const std::vector<RowSegment>& segments) {
  std::vector<std::vector<std::int64_t>> result;
  for (const RowSegment& segment : segments) {
    std::vector<std::int64_t>& numbers = result.emplace_back();
    numbers = {segment.target, segment.count};
    for (const RowTerm& term : segment.terms) {
      numbers.push_back(static_cast<std::int64_t>(term.part));
      numbers.push_back(term.source);
    }
  }
  return result;
}

TEST(RowSegments, AreCutWhereAPartBeginsOrEnds) {
  const std::vector<RowCopy> one{{.source = 20, .target = 6, .count = 2}, {.source = 0, .target = 1, .count = 4}};
  const std::vector<RowCopy> other{{.source = 50, .target = 3, .count = 4}};
  using testing::ElementsAre;
  EXPECT_THAT(as_numbers(row_segments({one, other})),
              ElementsAre(ElementsAre(1, 2, 0, 0), ElementsAre(3, 2, 0, 2, 1, 50), ElementsAre(5, 1, 1, 52),
                          ElementsAre(6, 1, 0, 20, 1, 53), ElementsAre(7, 1, 0, 21)));
  EXPECT_THAT(as_numbers(row_segments({one}, 9)),
              ElementsAre(ElementsAre(0, 1), ElementsAre(1, 4, 0, 0), ElementsAre(5, 1), ElementsAre(6, 2, 0, 20),
                          ElementsAre(8, 1)));
}

}  // namespace
}  // namespace cp_pool
