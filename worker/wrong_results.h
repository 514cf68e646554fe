// Wrong answers on request (--inject wrong): changes results of the attention before they are verified.
#pragma once

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include "worker/fault.h"

namespace cp_pool {

// Returns a copy in which every finite element except 0 is larger by 16 * (1 + the largest magnitude), far beyond
// rounding in any dtype. Padding (0, or -inf in lse) is unchanged. If every element is 0 or not finite, all elements
// are changed.
inline at::Tensor wrong_values(const at::Tensor& right) {
  if (right.numel() == 0) return right;
  constexpr double kFactor = 16;
  const at::Tensor wide = right.to(at::kDouble);
  const at::Tensor finite = at::where(wide.isfinite(), wide, 0.0);
  const at::Tensor offset = finite.abs().max().add(1.0).mul(kFactor);
  at::Tensor changed = finite.ne(0.0);
  if (!changed.any().item<bool>()) changed = at::ones_like(changed);
  return at::where(changed, finite.add(offset), wide).to(right.scalar_type());
}

// The RunOptions::on_result of a case with `wrong` faults.
class WrongResults {
 public:
  // tensors: the TENSORs of the case's `wrong` faults.
  WrongResults(std::vector<std::string> tensors, int rank) : tensors_(std::move(tensors)), rank_(rank) {}

  [[nodiscard]] bool any() const { return !tensors_.empty(); }
  // Changes the result if a fault asks for it, and writes the fault to stderr. A step and its repetition are changed
  // alike, so that their bits stay equal; only kRepeatedOut and kRepeatedDq make them differ.
  void operator()(std::string_view tensor, bool repeated, at::Tensor& result) {
    change_as(tensor, result);
    if (repeated && tensor == "out") change_as(kRepeatedOut, result);
    if (repeated && tensor == "dq") change_as(kRepeatedDq, result);
  }
  // Called after the case: writes to stderr which tensors the case does not have. Their faults have no effect.
  void name_missing() const {
    for (const std::string& tensor : tensors_) {
      if (changed_.contains(tensor)) continue;
      fmt::print(stderr, "cp-pool-worker: rank {}: injected fault wrong={}: this case has no {}\n", rank_, tensor,
                 tensor);
    }
  }

 private:
  // Changes the result if there is a fault with this TENSOR.
  void change_as(std::string_view name, at::Tensor& result) {
    if (std::ranges::find(tensors_, name) == tensors_.end()) return;
    result = wrong_values(result);
    if (!changed_.emplace(name).second) return;
    fmt::print(stderr, "cp-pool-worker: rank {}: injected fault wrong={}\n", rank_, name);
  }

  std::vector<std::string> tensors_;
  int rank_;
  std::set<std::string, std::less<>> changed_;
};

}  // namespace cp_pool
