// Measures the bandwidth of the row kernels beside a plain device copy and ATen's index_select. Bytes count once when
// read and once when written. The goal is 85% of the plain copy from 64 MiB up.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <fmt/format.h>

#include "cp_core/cuda/device.h"
#include "cp_core/partition.h"
#include "cp_core/thd/copy_rows.h"
#include "cp_core/thd/merge_partial.h"
#include "cp_core/thd/sum_rows.h"

extern "C" void cp_pool_give_cuda_part();

namespace cp_pool {
namespace {

constexpr int kRanks = 8;
constexpr int kSequences = 4;
constexpr int kWarmUps = 3;
constexpr int kRepeats = 21;

double median_milliseconds(const std::function<void()>& action) {
  for (int i = 0; i < kWarmUps; ++i) action();
  std::vector<c10::cuda::CUDAEvent> events;
  for (int i = 0; i <= kRepeats; ++i) events.emplace_back(cudaEventDefault);
  events[0].record();
  for (std::size_t i = 1; i < events.size(); ++i) {
    action();
    events[i].record();
  }
  events.back().synchronize();
  std::vector<float> times;
  for (std::size_t i = 1; i < events.size(); ++i) times.push_back(events[i - 1].elapsed_time(events[i]));
  std::ranges::nth_element(times, times.begin() + kRepeats / 2);
  return times[kRepeats / 2];
}

// Measures an action, prints a line and returns the bandwidth in GB/s.
double report(const std::string& name, std::int64_t bytes_moved, double reference,
              const std::function<void()>& action) {
  const double milliseconds = median_milliseconds(action);
  const double bandwidth = static_cast<double>(bytes_moved) / milliseconds / 1e6;
  const double share = reference == 0 ? 100.0 : 100.0 * bandwidth / reference;
  fmt::print("  {:<42} {:>9.4f} ms {:>8.0f} GB/s {:>6.1f}%\n", name, milliseconds, bandwidth, share);
  std::fflush(stdout);
  return bandwidth;
}

at::Tensor row_indices(const std::vector<RowCopy>& copies, std::int64_t rows) {
  std::vector<std::int64_t> sources(static_cast<std::size_t>(rows));
  for (const RowCopy& copy : copies) {
    for (std::int64_t i = 0; i < copy.count; ++i) {
      sources[static_cast<std::size_t>(copy.target + i)] = copy.source + i;
    }
  }
  return at::tensor(sources).cuda();
}

// The copies of the valid rows where one row in eight of every sequence is padding.
std::vector<RowCopy> valid_copies(std::int64_t rows) {
  const std::int64_t padded = rows / kSequences;
  std::vector<RowCopy> copies;
  copies.reserve(kSequences);
  for (std::int64_t s = 0; s < kSequences; ++s) {
    copies.push_back({.source = s * padded, .target = s * padded, .count = padded * 7 / 8});
  }
  return copies;
}

void bench_copies(std::int64_t bytes, std::int64_t heads, std::int64_t dim) {
  const std::int64_t row_bytes = heads * dim * 2;
  const std::int64_t rows = bytes / row_bytes;
  fmt::print("{} MiB of rows of {} bytes\n", bytes >> 20, row_bytes);
  const at::Tensor source = at::randn({rows, heads, dim}, at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16));
  at::Tensor target = at::empty_like(source);
  const double copy = report("cudaMemcpyAsync, device to device", 2 * bytes, 0, [&] {
    C10_CUDA_CHECK(cudaMemcpyAsync(target.data_ptr(), source.const_data_ptr(), static_cast<std::size_t>(bytes),
                                   cudaMemcpyDeviceToDevice, c10::cuda::getCurrentCUDAStream()));
  });

  const std::vector<std::int64_t> padded(kSequences, rows / kSequences);
  const std::vector<RowCopy> reorder = row_copies(gathered_runs(padded, kRanks, 0, kRanks), whole_runs(padded));
  report(fmt::format("copy_rows: dual-chunk order of {} ranks", kRanks), 2 * bytes, copy,
         [&] { copy_rows(source, target, reorder); });
  at::Tensor again = at::empty_like(source);
  report("copy_rows: and back", 2 * bytes, copy, [&] { copy_rows_back(target, again, reorder); });
  const at::Tensor indices = row_indices(reorder, rows);
  report("at::index_select: the same", 2 * bytes, copy, [&] { at::index_select_out(target, source, 0, indices); });

  const std::vector<RowCopy> valid = valid_copies(rows);
  report("copy_rows: valid rows, 1 in 8 is padding", 2 * bytes * 7 / 8, copy,
         [&] { copy_rows(source, target, valid); });
}

void bench_merges(std::int64_t bytes, std::int64_t heads, std::int64_t dim) {
  const std::int64_t tokens = bytes / (heads * dim * 4);
  fmt::print("{} MiB of fp32 output, {} tokens, {} heads, {} dim\n", bytes >> 20, tokens, heads, dim);
  const auto options = at::TensorOptions().device(at::kCUDA);
  at::Tensor out = at::randn({tokens, heads, dim}, options);
  at::Tensor lse = at::randn({heads, tokens}, options);
  const at::Tensor part_out = at::randn({tokens, heads, dim}, options);
  const at::Tensor part_lse = at::randn({heads, tokens}, options);
  const at::Tensor sink = at::randn({heads}, options);
  const std::vector<RowRange> rows{{.row = 0, .count = tokens}};
  const double copy = report("cudaMemcpyAsync, device to device", 2 * bytes, 0, [&] {
    C10_CUDA_CHECK(cudaMemcpyAsync(out.data_ptr(), part_out.const_data_ptr(), static_cast<std::size_t>(bytes),
                                   cudaMemcpyDeviceToDevice, c10::cuda::getCurrentCUDAStream()));
  });
  const std::vector<RowCopy> all{{.source = 0, .target = 0, .count = tokens}};
  report("merge_partial", 3 * bytes, copy, [&] { merge_partial(out, lse, part_out, part_lse, all); });
  report("merge_sink", 2 * bytes, copy, [&] { merge_sink(out, lse, sink, rows); });
  report("sink_gradient (bytes of lse and delta)", 2 * tokens * heads * 4, copy,
         [&] { (void)sink_gradient(sink, lse, part_lse, rows); });
}

void bench_sums(std::int64_t bytes, std::int64_t heads, std::int64_t dim) {
  const std::int64_t rows = bytes / (heads * dim * 2);
  fmt::print("{} MiB of bf16 rows of {} bytes, summed\n", bytes >> 20, heads * dim * 2);
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  at::Tensor sum = at::randn({rows, heads, dim}, options);
  at::Tensor other = at::empty_like(sum);
  const double copy = report("cudaMemcpyAsync, device to device", 2 * bytes, 0, [&] {
    C10_CUDA_CHECK(cudaMemcpyAsync(other.data_ptr(), sum.const_data_ptr(), static_cast<std::size_t>(bytes),
                                   cudaMemcpyDeviceToDevice, c10::cuda::getCurrentCUDAStream()));
  });
  std::vector<SomeRows> parts;
  for (const std::int64_t count : {1, 2, 3, 6}) {
    while (std::ssize(parts) < count) {
      parts.push_back(
          {.tensor = at::randn({rows, heads, dim}, options), .rows = {{.source = 0, .target = 0, .count = rows}}});
    }
    report(fmt::format("add_rows: {} parts", count), (count + 2) * bytes, copy, [&] { add_rows(sum, parts); });
    report(fmt::format("sum_rows: {} parts", count), (count + 1) * bytes, copy, [&] { sum_rows(sum, parts); });
  }
}

int run() {
  cp_pool_give_cuda_part();
  cuda_device().use_device(0);
  fmt::print("{}; {}\n", cuda_device().device_name(0), cuda_device().versions());
  for (const std::int64_t mebibytes : {64, 128, 256, 512, 1024}) {
    for (const std::int64_t heads : {1, 16}) bench_copies(mebibytes << 20, heads, 128);
    bench_merges(mebibytes << 20, 16, 128);
    bench_sums(mebibytes << 20, 16, 128);
  }
  return 0;
}

}  // namespace
}  // namespace cp_pool

int main() {
  try {
    return cp_pool::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "row_kernels_bench: {}\n", error.what());
    return 1;
  }
}
