#include "cp_core/diagnosis/pair_values.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>

namespace cp_pool::diagnosis {
namespace {

// a and b must have the same shape. NaN equals NaN, and infinities equal themselves.
bool alike(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  const at::Tensor close = a.sub(b).abs().le(at::maximum(a.abs(), b.abs()).mul(tolerance));
  const at::Tensor both_nan = a.isnan().logical_and(b.isnan());
  return close.logical_or(a.eq(b)).logical_or(both_nan).all().item<bool>();
}

}  // namespace

PairValues::PairValues(std::int64_t heads, std::int64_t q, std::int64_t kv, double tolerance, std::int64_t most_values)
    : tolerance_(tolerance), most_classes_(std::max<std::int64_t>(most_values / std::max<std::int64_t>(q * kv, 1), 1)) {
  HeadClass all{.heads = std::vector<std::int64_t>(static_cast<std::size_t>(heads)),
                .values = at::full({q, kv}, std::numeric_limits<float>::quiet_NaN(), at::kFloat)};
  std::iota(all.heads.begin(), all.heads.end(), 0);
  classes_.push_back(std::move(all));
}

void PairValues::tell_apart(const at::Tensor& values) {
  std::vector<HeadClass> found;
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    const HeadClass& old = classes_[i];
    const auto first_part = static_cast<std::ptrdiff_t>(found.size());
    // Leaves room for one matrix of each class that is still to be split.
    const auto room = most_classes_ - static_cast<std::int64_t>(classes_.size() - i - 1);
    for (const std::int64_t head : old.heads) {
      const auto same = std::find_if(found.begin() + first_part, found.end(), [&](const HeadClass& part) {
        return alike(values.select(1, part.heads.front()), values.select(1, head), tolerance_);
      });
      const bool is_first = std::ssize(found) == first_part;
      if (same != found.end()) {
        same->heads.push_back(head);
      } else if (is_first || std::ssize(found) < room) {
        found.push_back({.heads = {head}, .values = is_first ? old.values : old.values.clone()});
      } else {
        unread_.push_back(head);
      }
    }
  }
  classes_ = std::move(found);
}

void PairValues::set_keys(std::int64_t first, const at::Tensor& values) {
  tell_apart(values);
  for (HeadClass& one : classes_) {
    one.values.narrow(1, first, values.size(2)).copy_(values.select(1, one.heads.front()));
  }
}

void PairValues::set_queries(std::int64_t first, const at::Tensor& values) {
  tell_apart(values);
  for (HeadClass& one : classes_) {
    one.values.narrow(0, first, values.size(2)).copy_(values.select(1, one.heads.front()).t());
  }
}

}  // namespace cp_pool::diagnosis
