#include "cp_core/context_parallel/row_sum.h"

#include <algorithm>
#include <iterator>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "cp_core/attention/backend.h"
#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

// How many times the rows of the sum may be kept unsummed. Two 16-bit tensors take as much memory as the fp32 sum that
// they would be added to.
constexpr std::int64_t kMostKept = 2;

#ifdef CP_POOL_MUTANTS
std::vector<RowCopy> in_place(std::vector<RowCopy> rows) {
  std::int64_t next = 0;
  for (RowCopy& range : rows) range.target = std::exchange(next, next + range.count);
  return rows;
}

std::span<const SomeRows> without_last(std::span<const SomeRows> parts) {
  return parts.size() > 1 ? parts.first(parts.size() - 1) : parts;
}
#endif

SomeRows placed(SomeRows part) {
  return {.tensor = std::move(part.tensor),
          .rows = CP_MUTATE(some_rows_in_place, std::move(part.rows), in_place(std::move(part.rows)))};
}

// The longest beginning of `parts` that has one dtype.
std::span<const SomeRows> of_one_dtype(std::span<const SomeRows> parts) {
  const auto other = std::ranges::find_if(parts, [&parts](const SomeRows& part) {
    return part.tensor.scalar_type() != parts.front().tensor.scalar_type();
  });
  return parts.first(static_cast<std::size_t>(other - parts.begin()));
}

void add_in_turn(at::Tensor& sum, std::span<const SomeRows> parts) {
  while (!parts.empty()) {
    const std::span<const SomeRows> some = of_one_dtype(parts);
    add_rows(sum, CP_MUTATE(last_kept_part_dropped, some, without_last(some)));
    parts = parts.subspan(some.size());
  }
}

}  // namespace

SomeRows all_rows(at::Tensor tensor) {
  const std::int64_t rows = tensor.size(0);
  return {.tensor = std::move(tensor), .rows = {{.source = 0, .target = 0, .count = rows}}};
}

void RowSum::add(SomeRows part) {
  if (empty()) {
    sum_ = placed(std::move(part));
    return;
  }
  const bool wide = part.tensor.scalar_type() == at::kFloat;
  kept_.push_back(placed(std::move(part)));
  if (wide || keeps_too_much()) whole_fp32();
}

void RowSum::add_last(std::vector<SomeRows> parts) {
  for (SomeRows& part : parts) kept_.push_back(placed(std::move(part)));
  if (kept_.empty()) return;
  if (empty()) {
    sum_ = std::move(kept_.front());
    kept_.erase(kept_.begin());
  }
  if (of_one_dtype(kept_).size() < kept_.size()) {
    whole_fp32();
    return;
  }
  std::vector<SomeRows> last = std::exchange(kept_, {});
  if (last.empty()) return;
  if (is_whole() || last.front().tensor.scalar_type() != sum_.tensor.scalar_type()) {
    at::Tensor sum = whole();
    add_in_turn(sum, last);
    return;
  }
  last.insert(last.begin(), std::move(sum_));
  start(last, last.front().tensor.scalar_type());
}

std::vector<SomeRows> RowSum::take() {
  if (empty()) return {};
  std::vector<SomeRows> parts{sum_};
  std::ranges::copy(kept_, std::back_inserter(parts));
  if (of_one_dtype(parts).size() < parts.size()) parts = {all_rows(whole_fp32())};
  sum_ = {};
  kept_.clear();
  return parts;
}

const SomeRows& RowSum::rows() {
  if (!kept_.empty()) whole_fp32();
  return sum_;
}

at::Tensor RowSum::whole() {
  if (empty()) return at::zeros(like_.sizes(), like_.options());
  if (!kept_.empty()) return whole_fp32();
  if (!is_whole()) start({&sum_, 1}, sum_.tensor.scalar_type());
  return sum_.tensor;
}

at::Tensor RowSum::whole_fp32() {
  if (empty()) sum_ = all_rows(at::zeros(like_.sizes(), like_.options().dtype(at::kFloat)));
  std::vector<SomeRows> parts = std::exchange(kept_, {});
  std::span<const SomeRows> left = parts;
  if (!is_whole() || sum_.tensor.scalar_type() != at::kFloat) {
    parts.insert(parts.begin(), sum_);
    const std::span<const SomeRows> first = of_one_dtype(parts);
    start(first, at::kFloat);
    left = std::span<const SomeRows>(parts).subspan(first.size());
  }
  add_in_turn(sum_.tensor, left);
  return sum_.tensor;
}

at::Tensor RowSum::empty_whole(at::ScalarType dtype) const {
  return at::empty(like_.sizes(), like_.options().dtype(dtype));
}

bool RowSum::is_whole() const {
  return all_in_place(sum_.rows, like_.size(0));
}

void RowSum::start(std::span<const SomeRows> parts, at::ScalarType dtype) {
  at::Tensor sum = empty_whole(dtype);
  sum_rows(sum, CP_MUTATE(last_kept_part_dropped, parts, without_last(parts)));
  sum_ = all_rows(std::move(sum));
}

bool RowSum::keeps_too_much() const {
  std::int64_t rows = 0;
  for (const SomeRows& part : kept_) rows += part.tensor.size(0);
  return rows > kMostKept * like_.size(0);
}

}  // namespace cp_pool
