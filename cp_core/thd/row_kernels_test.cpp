#include "cp_core/thd/row_kernels.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cp_core/testing/gpu_fixture.h"
#include "cp_core/thd/copy_rows.h"
#include "cp_core/thd/merge_partial.h"
#include "cp_core/thd/sum_rows.h"

namespace cp_pool {
namespace {

using Random = std::mt19937_64;

std::int64_t draw(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

// Returns `count` disjoint ranges of a tensor of `rows` rows, in order. Some may be empty.
std::vector<RowRange> random_ranges(Random& random, std::int64_t rows, std::int64_t count) {
  std::vector<std::int64_t> cuts(static_cast<std::size_t>(2 * count));
  for (std::int64_t& cut : cuts) cut = draw(random, 0, rows);
  std::ranges::sort(cuts);
  std::vector<RowRange> ranges;
  for (std::size_t i = 0; i < cuts.size(); i += 2) ranges.push_back({.row = cuts[i], .count = cuts[i + 1] - cuts[i]});
  return ranges;
}

// Returns copies with disjoint targets and sources anywhere.
std::vector<RowCopy> random_copies(Random& random, std::int64_t rows, std::int64_t count) {
  std::vector<RowCopy> copies;
  for (const RowRange& range : random_ranges(random, rows, count)) {
    copies.push_back({.source = draw(random, 0, rows - range.count), .target = range.row, .count = range.count});
  }
  std::ranges::shuffle(copies, random);
  return copies;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.cpu().contiguous().view(at::kByte), b.cpu().contiguous().view(at::kByte));
}

// Says, for a message, how many elements differ and which is the first.
std::string difference(const at::Tensor& on_gpu, const at::Tensor& on_cpu) {
  const at::Tensor got = on_gpu.cpu().view(-1).to(at::kDouble);
  const at::Tensor want = on_cpu.view(-1).to(at::kDouble);
  const at::Tensor where = got.ne(want).nonzero().view(-1);
  if (where.numel() == 0) return "no element differs in value";
  const auto first = where[0].item<std::int64_t>();
  return fmt::format("{} of {} elements differ; [{}] is {:.9g} on the GPU, {:.9g} on the CPU", where.numel(),
                     got.numel(), first, got[first].item<double>(), want[first].item<double>());
}

at::Tensor random_values(const std::vector<std::int64_t>& shape, at::ScalarType dtype) {
  if (at::isIntegralType(dtype, /*includeBool=*/false))
    return at::randint(100, shape, at::TensorOptions().dtype(dtype));
  return at::randn(shape).to(dtype);
}

// --- copy_rows -------------------------------------------------------------------------------------------------------

class CopyRowsOnGpu : public GpuTest {
 protected:
  static void expect_as_on_cpu(const at::Tensor& source, const at::Tensor& target, std::span<const RowCopy> copies) {
    at::Tensor on_cpu = target.cpu().clone();
    at::Tensor on_gpu = target.clone();
    copy_rows(source.cpu(), on_cpu, copies);
    copy_rows(source, on_gpu, copies);
    EXPECT_TRUE(same_bits(on_gpu, on_cpu)) << difference(on_gpu, on_cpu);
  }
};

TEST_F(CopyRowsOnGpu, GivesTheBitsOfTheCpuForEveryRowSizeAndNumberOfCopies) {
  struct Row {
    std::vector<std::int64_t> shape;
    at::ScalarType dtype;
  };
  const std::vector<Row> rows{{{8, 128}, at::kBFloat16}, {{5}, at::kBFloat16}, {{3}, at::kByte}, {{1}, at::kFloat},
                              {{2, 3}, at::kFloat},      {{192}, at::kFloat},  {{7}, at::kLong}};
  Random random(1);
  for (const Row& row : rows) {
    for (const std::int64_t count : {0, 1, 7, 64, 65, 200, 1500}) {
      constexpr std::int64_t kRows = 4000;
      SCOPED_TRACE(
          fmt::format("{} copies of rows of {} {}", count, fmt::join(row.shape, " x "), c10::toString(row.dtype)));
      std::vector<std::int64_t> shape{kRows};
      shape.insert(shape.end(), row.shape.begin(), row.shape.end());
      expect_as_on_cpu(random_values(shape, row.dtype).cuda(), random_values(shape, row.dtype).cuda(),
                       random_copies(random, kRows, count));
    }
  }
}

TEST_F(CopyRowsOnGpu, TakesTensorsAtAnyAddress) {
  Random random(2);
  for (const std::int64_t offset : {1, 2, 4, 8}) {
    const at::Tensor source = at::randn({1000 * 16 + offset}, at::kCUDA).to(at::kBFloat16).narrow(0, offset, 16000);
    const at::Tensor target = at::zeros({1000, 16}, source.options());
    SCOPED_TRACE(fmt::format("from element {}", offset));
    expect_as_on_cpu(source.view({1000, 16}), target, random_copies(random, 1000, 20));
  }
}

// --- copy_blocks -----------------------------------------------------------------------------------------------------

class CopyBlocksOnGpu : public GpuTest {};

// Every block writes to a rectangle of its own in the target.
TEST_F(CopyBlocksOnGpu, GivesTheBytesOfTheCpuForEveryAlignmentAndNumberOfBlocks) {
  Random random(9);
  for (const std::int64_t unit : {1, 2, 4, 8, 16}) {
    for (const std::int64_t count : {0, 1, 7, 32, 33, 480, 1000}) {
      SCOPED_TRACE(fmt::format("{} blocks in units of {}", count, unit));
      constexpr std::int64_t kStride = 64 * 16;
      constexpr std::int64_t kRows = 5;
      const at::Tensor source = random_values({(count + 1) * kRows * kStride}, at::kByte);
      at::Tensor on_cpu = random_values({(count + 1) * kRows * kStride}, at::kByte);
      const at::Tensor source_gpu = source.cuda();
      const at::Tensor on_gpu = on_cpu.cuda();
      std::vector<BlockCopy> cpu_blocks;
      std::vector<BlockCopy> gpu_blocks;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t width = draw(random, 0, kStride / unit / 2) * unit;
        const std::int64_t from = i * kRows * kStride + draw(random, 0, kStride / unit / 2) * unit;
        const std::int64_t to = i * kRows * kStride + draw(random, 0, kStride / unit / 2) * unit;
        const auto block = [&](const at::Tensor& in, const at::Tensor& out) {
          return BlockCopy{.source = static_cast<const std::byte*>(in.const_data_ptr()) + from,
                           .target = static_cast<std::byte*>(out.mutable_data_ptr()) + to,
                           .rows = 1 + i % kRows,
                           .width = width,
                           .source_stride = kStride,
                           .target_stride = kStride};
        };
        cpu_blocks.push_back(block(source, on_cpu));
        gpu_blocks.push_back(block(source_gpu, on_gpu));
      }
      copy_blocks(cpu_blocks, on_cpu.device());
      copy_blocks(gpu_blocks, on_gpu.device());
      EXPECT_TRUE(same_bits(on_gpu, on_cpu)) << difference(on_gpu, on_cpu);
    }
  }
}

// --- sum_rows --------------------------------------------------------------------------------------------------------

struct Types {
  at::ScalarType to;
  at::ScalarType from;
};
constexpr std::array kTypes{Types{at::kFloat, at::kFloat},       Types{at::kFloat, at::kBFloat16},
                            Types{at::kBFloat16, at::kBFloat16}, Types{at::kBFloat16, at::kFloat},
                            Types{at::kFloat, at::kHalf},        Types{at::kHalf, at::kHalf},
                            Types{at::kHalf, at::kFloat}};

std::string text_of(const Types& types) {
  return fmt::format("{} into {}", c10::toString(types.from), c10::toString(types.to));
}

class SumRowsOnGpu : public GpuTest {
 protected:
  static std::vector<SomeRows> on_gpu(std::vector<SomeRows> parts) {
    for (SomeRows& part : parts) part.tensor = part.tensor.cuda();
    return parts;
  }

  static void expect_as_on_cpu(const at::Tensor& sum, const std::vector<SomeRows>& parts) {
    const std::vector<SomeRows> gpu_parts = on_gpu(parts);
    at::Tensor cpu_sum = sum.clone();
    at::Tensor gpu_sum = sum.cuda();
    add_rows(cpu_sum, parts);
    add_rows(gpu_sum, gpu_parts);
    EXPECT_TRUE(same_bits(gpu_sum, cpu_sum)) << "added: " << difference(gpu_sum, cpu_sum);
    sum_rows(cpu_sum, parts);
    sum_rows(gpu_sum, gpu_parts);
    EXPECT_TRUE(same_bits(gpu_sum, cpu_sum)) << "from nothing: " << difference(gpu_sum, cpu_sum);
  }
};

TEST_F(SumRowsOnGpu, GivesTheBitsOfTheCpuForEveryDtypeAndNumberOfPartsAndRanges) {
  const std::vector<std::vector<std::int64_t>> shapes{{300, 8, 128}, {2000, 3, 5}, {4000, 1, 8}};
  Random random(7);
  for (const Types& types : kTypes) {
    for (const std::vector<std::int64_t>& shape : shapes) {
      for (const std::int64_t ranges : {0, 1, 7, 40, 1500}) {
        for (const std::size_t count : {1, 2, 3, 4, 5, 9}) {
          SCOPED_TRACE(
              fmt::format("{}, {} parts of {} ranges of {}", text_of(types), count, ranges, fmt::join(shape, " x ")));
          std::vector<SomeRows> parts;
          for (std::size_t i = 0; i < count; ++i) {
            parts.push_back(
                {.tensor = random_values(shape, types.from), .rows = random_copies(random, shape[0], ranges)});
          }
          expect_as_on_cpu(random_values(shape, types.to), parts);
        }
      }
    }
  }
}

TEST_F(SumRowsOnGpu, TakesMorePartsThanAShortListHas) {
  Random random(10);
  std::vector<SomeRows> parts;
  for (int i = 0; i < 150; ++i) {
    parts.push_back({.tensor = random_values({30, 2, 8}, at::kBFloat16), .rows = random_copies(random, 30, 1)});
  }
  expect_as_on_cpu(random_values({30, 2, 8}, at::kFloat), parts);
}

TEST_F(SumRowsOnGpu, TakesPartsAtAnyAddress) {
  constexpr std::int64_t kRows = 100;
  const at::Tensor whole = at::randn({kRows * 16 + 1}, at::kCUDA).to(at::kBFloat16);
  const at::Tensor odd = whole.narrow(0, 1, kRows * 16).view({kRows, 2, 8});
  const std::vector<RowCopy> rows{{.source = 3, .target = 10, .count = 80}};
  at::Tensor sum = at::zeros({kRows, 2, 8}, whole.options());
  at::Tensor cpu_sum = sum.cpu();
  add_rows(sum, std::vector<SomeRows>{{.tensor = odd, .rows = rows}});
  add_rows(cpu_sum, std::vector<SomeRows>{{.tensor = odd.cpu(), .rows = rows}});
  EXPECT_TRUE(same_bits(sum, cpu_sum)) << difference(sum, cpu_sum);
}

// --- merging ---------------------------------------------------------------------------------------------------------

// Returns ordinary values mixed with -inf (rows without keys in one part or both), with equal values and with values
// far apart.
at::Tensor random_lse(std::int64_t heads, std::int64_t tokens) {
  at::Tensor lse = at::randn({heads, tokens}).mul(8.0);
  const at::Tensor kind = at::randint(8, {heads, tokens});
  lse.masked_fill_(kind.eq(0), -std::numeric_limits<double>::infinity());
  lse.masked_fill_(kind.eq(1), 2.5);
  lse.masked_fill_(kind.eq(2), -90.0);
  lse.masked_fill_(kind.eq(3), 1e-6);
  return lse;
}

struct MergeShape {
  std::int64_t tokens;
  std::int64_t heads;
  std::int64_t dim;
  std::int64_t ranges;
};

class MergeOnGpu : public GpuTest {
 protected:
  static std::string text(const MergeShape& shape) {
    return fmt::format("{} tokens, {} heads, {} dim, {} ranges", shape.tokens, shape.heads, shape.dim, shape.ranges);
  }
  inline static const std::vector<MergeShape> kShapes{
      {.tokens = 500, .heads = 16, .dim = 128, .ranges = 3},  {.tokens = 500, .heads = 5, .dim = 64, .ranges = 1},
      {.tokens = 300, .heads = 3, .dim = 192, .ranges = 64},  {.tokens = 900, .heads = 2, .dim = 100, .ranges = 65},
      {.tokens = 77, .heads = 1, .dim = 3, .ranges = 9},      {.tokens = 1, .heads = 1, .dim = 1, .ranges = 1},
      {.tokens = 6000, .heads = 2, .dim = 8, .ranges = 1500}, {.tokens = 50, .heads = 4, .dim = 32, .ranges = 0}};
};

TEST_F(MergeOnGpu, OfSomeRowsOfEveryDtypeGivesTheBitsOfTheCpu) {
  Random random(8);
  for (const Types& types : kTypes) {
    for (const MergeShape& shape : kShapes) {
      SCOPED_TRACE(fmt::format("{}, {}", text_of(types), text(shape)));
      const std::vector<RowCopy> rows = random_copies(random, shape.tokens, shape.ranges);
      at::Tensor out = random_values({shape.tokens, shape.heads, shape.dim}, types.to);
      at::Tensor lse = random_lse(shape.heads, shape.tokens);
      const at::Tensor part_out = random_values({shape.tokens + 3, shape.heads, shape.dim}, types.from);
      const at::Tensor part_lse = random_lse(shape.heads, shape.tokens + 3);
      at::Tensor out_gpu = out.cuda();
      at::Tensor lse_gpu = lse.cuda();
      merge_partial(out, lse, part_out, part_lse, rows);
      merge_partial(out_gpu, lse_gpu, part_out.cuda(), part_lse.cuda(), rows);
      EXPECT_TRUE(same_bits(lse_gpu, lse)) << "lse: " << difference(lse_gpu, lse);
      EXPECT_TRUE(same_bits(out_gpu, out)) << "out: " << difference(out_gpu, out);
    }
  }
}

TEST_F(MergeOnGpu, OfASinkGivesTheBitsOfTheCpu) {
  Random random(5);
  for (const MergeShape& shape : kShapes) {
    SCOPED_TRACE(text(shape));
    const std::vector<RowRange> rows = random_ranges(random, shape.tokens, shape.ranges);
    at::Tensor out = at::randn({shape.tokens, shape.heads, shape.dim});
    at::Tensor lse = random_lse(shape.heads, shape.tokens);
    const at::Tensor sink = at::randn({shape.heads});
    at::Tensor out_gpu = out.cuda();
    at::Tensor lse_gpu = lse.cuda();
    merge_sink(out, lse, sink, rows);
    merge_sink(out_gpu, lse_gpu, sink.cuda(), rows);
    EXPECT_TRUE(same_bits(lse_gpu, lse)) << "lse: " << difference(lse_gpu, lse);
    EXPECT_TRUE(same_bits(out_gpu, out)) << "out: " << difference(out_gpu, out);
  }
}

TEST_F(MergeOnGpu, OfThePartsOfASinkGradientGivesTheBitsOfTheCpu) {
  Random random(6);
  for (const MergeShape& shape : kShapes) {
    SCOPED_TRACE(text(shape));
    const std::vector<RowRange> rows = random_ranges(random, shape.tokens, shape.ranges);
    const at::Tensor sink = at::randn({shape.heads});
    const at::Tensor lse = at::randn({shape.heads, shape.tokens}).add(3.0);
    const at::Tensor delta = at::randn({shape.heads, shape.tokens});
    const at::Tensor on_cpu = sink_gradient(sink, lse, delta, rows);
    const at::Tensor on_gpu = sink_gradient(sink.cuda(), lse.cuda(), delta.cuda(), rows);
    EXPECT_TRUE(same_bits(on_gpu, on_cpu)) << difference(on_gpu, on_cpu);
  }
}

TEST_F(MergeOnGpu, GivesTheSameBitsForOutputsAtAnyAddress) {
  // An address one float off a multiple of 16 bytes takes the path without vectors.
  const std::vector<RowCopy> rows{{.source = 0, .target = 0, .count = 200}};
  const at::Tensor whole = at::randn({200 * 4 * 64}, at::kCUDA);
  const at::Tensor part_out = at::randn({200, 4, 64}, at::kCUDA);
  const at::Tensor lse = at::randn({4, 200}, at::kCUDA);
  const at::Tensor part_lse = at::randn({4, 200}, at::kCUDA);
  at::Tensor aligned = whole.view({200, 4, 64}).clone();
  at::Tensor odd = at::zeros({whole.numel() + 1}, at::kCUDA).narrow(0, 1, whole.numel()).view({200, 4, 64});
  odd.copy_(aligned);
  at::Tensor aligned_lse = lse.clone();
  at::Tensor odd_lse = lse.clone();
  merge_partial(aligned, aligned_lse, part_out, part_lse, rows);
  merge_partial(odd, odd_lse, part_out, part_lse, rows);
  EXPECT_TRUE(same_bits(odd, aligned)) << difference(odd, aligned.cpu());
}

}  // namespace
}  // namespace cp_pool
