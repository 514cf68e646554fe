// Tests kernels on tensors with more than 2^31 elements, where a 32-bit index would address other rows, or none. Runs
// on the CPU (huge_rows_test, label long: 9 GiB) and on a GPU (gpu_huge_rows_test, label gpu: 18 GiB of GPU memory).
#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#ifdef CP_POOL_HUGE_ROWS_ON_GPU
#include "cp_core/testing/gpu_fixture.h"
#endif
#include "cp_core/thd/copy_rows.h"
#include "cp_core/thd/merge_partial.h"
#include "cp_core/thd/sum_rows.h"

namespace cp_pool {
namespace {

#ifdef CP_POOL_HUGE_ROWS_ON_GPU
using HugeRowsBase = GpuTest;
const at::Device kDevice = at::kCUDA;
#else
using HugeRowsBase = testing::Test;
const at::Device kDevice = at::kCPU;
#endif

constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kDim = 1024;
constexpr std::int64_t kRowElements = kHeads * kDim;
constexpr std::int64_t kRows = (std::int64_t{1} << 31U) / kRowElements + 1000;
constexpr std::int64_t kShift = 300;  // how far the rows of a part are shifted against those of the target
static_assert(kRows * kRowElements > std::int64_t{1} << 31U);

at::TensorOptions options(at::ScalarType dtype) {
  return at::TensorOptions(kDevice).dtype(dtype);
}

// Row r has the value r % 251, which every dtype represents exactly. A row that a 32-bit index would address has
// another value.
at::Tensor numbers(std::int64_t first, std::int64_t count) {
  return at::arange(first, first + count, options(at::kLong)).remainder(251).to(at::kFloat);
}

// Calls visit(first, count) for pieces that cover all rows, so that only the tensors themselves take much memory.
template <typename Visit>
void for_pieces(std::int64_t rows, const Visit& visit) {
  constexpr std::int64_t kPiece = 8192;
  for (std::int64_t first = 0; first < rows; first += kPiece) visit(first, std::min(kPiece, rows - first));
}

at::Tensor numbered_rows(std::int64_t rows, at::ScalarType dtype) {
  at::Tensor tensor = at::empty({rows, kHeads, kDim}, options(dtype));
  for_pieces(rows, [&](std::int64_t first, std::int64_t count) {
    tensor.narrow(0, first, count).copy_(numbers(first, count).view({count, 1, 1}));
  });
  return tensor;
}

// How many rows from row `begin` on do not have `factor` times the value of row (own number + shift) in numbers().
std::int64_t wrong_rows(const at::Tensor& tensor, std::int64_t begin, std::int64_t shift, double factor) {
  std::int64_t wrong = 0;
  for_pieces(tensor.size(0) - begin, [&](std::int64_t first, std::int64_t count) {
    const at::Tensor rows = tensor.narrow(0, begin + first, count);
    const at::Tensor expected = numbers(begin + first + shift, count).mul(factor).to(tensor.scalar_type());
    wrong += rows.ne(expected.view({count, 1, 1})).any(2).any(1).sum().item<std::int64_t>();
  });
  return wrong;
}

// Row r of the target is row r + kShift of the part.
const std::vector<RowCopy> kShifted{{.source = kShift, .target = 0, .count = kRows - kShift}};

class HugeRows : public HugeRowsBase {};

TEST_F(HugeRows, AreCopied) {
  const at::Tensor source = numbered_rows(kRows, at::kBFloat16);
  at::Tensor target = at::empty_like(source);
  copy_rows(source, target, kShifted);
  EXPECT_EQ(wrong_rows(target.narrow(0, 0, kRows - kShift), 0, kShift, 1), 0);
}

TEST_F(HugeRows, AreSummed) {
  const at::Tensor part = numbered_rows(kRows, at::kBFloat16);
  at::Tensor sum = at::empty_like(part);
  // No part covers the last rows of the sum.
  sum_rows(sum, std::vector<SomeRows>{{.tensor = part, .rows = kShifted}});
  EXPECT_EQ(wrong_rows(sum.narrow(0, 0, kRows - kShift), 0, kShift, 1), 0);
  EXPECT_FALSE(sum.narrow(0, kRows - kShift, kShift).any().item<bool>());
  add_rows(sum, std::vector<SomeRows>{{.tensor = part, .rows = kShifted}});
  EXPECT_EQ(wrong_rows(sum.narrow(0, 0, kRows - kShift), 0, kShift, 2), 0);
}

// Merging two parts with the same lse gives their mean. `out` is all zeros before.
TEST_F(HugeRows, AreMerged) {
  at::Tensor out = at::zeros({kRows, kHeads, kDim}, options(at::kBFloat16));
  const at::Tensor part = numbered_rows(kRows, at::kBFloat16);
  at::Tensor lse = at::zeros({kHeads, kRows}, options(at::kFloat));
  const at::Tensor part_lse = at::zeros({kHeads, kRows}, options(at::kFloat));
  merge_partial(out, lse, part, part_lse, kShifted);
  EXPECT_EQ(wrong_rows(out.narrow(0, 0, kRows - kShift), 0, kShift, 0.5), 0);
  EXPECT_FALSE(out.narrow(0, kRows - kShift, kShift).any().item<bool>());
}

// Sinks are merged in fp32. The sink takes half of each row's softmax.
TEST_F(HugeRows, AreMergedWithASink) {
  at::Tensor out = numbered_rows(kRows, at::kFloat);
  at::Tensor lse = at::zeros({kHeads, kRows}, options(at::kFloat));
  merge_sink(out, lse, at::zeros({kHeads}, options(at::kFloat)),
             std::vector<RowRange>{{.row = 0, .count = 5}, {.row = 100, .count = kRows - 100}});
  EXPECT_EQ(wrong_rows(out, 100, 0, 0.5), 0);
  EXPECT_EQ(wrong_rows(out.narrow(0, 0, 5), 0, 0, 0.5), 0);
  EXPECT_EQ(wrong_rows(out.narrow(0, 0, 100), 5, 0, 1), 0);
}

// lse [heads, tokens] has more than 2^31 elements: 16 heads of 2^27 tokens and some more.
TEST_F(HugeRows, OfStatisticsAreTakenFromTheRightHead) {
  constexpr std::int64_t kManyHeads = 16;
  constexpr std::int64_t kTokens = (std::int64_t{1} << 27U) + 1000;
  at::Tensor lse = at::empty({kManyHeads, kTokens}, options(at::kFloat));
  const at::Tensor sink = at::zeros({kManyHeads}, options(at::kFloat));
  // Only the last rows are read and written.
  const std::vector<RowRange> last{{.row = kTokens - 10, .count = 10}};
  lse.narrow(1, kTokens - 10, 10).zero_();
  at::Tensor delta = at::empty({kManyHeads, kTokens}, options(at::kFloat));
  delta.narrow(1, kTokens - 10, 10).copy_(at::arange(1, kManyHeads + 1, options(at::kFloat)).view({kManyHeads, 1}));
  const at::Tensor gradient = sink_gradient(sink, lse, delta, last);
  EXPECT_TRUE(gradient.equal(at::arange(1, kManyHeads + 1, options(at::kFloat)).mul(-10))) << gradient;
}

}  // namespace
}  // namespace cp_pool
