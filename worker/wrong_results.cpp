#include "worker/wrong_results.h"

#include <algorithm>

#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include "worker/fault.h"

namespace cp_pool {

at::Tensor wrong_values(const at::Tensor& right) {
  if (right.numel() == 0) return right;
  constexpr double kFactor = 16;
  const at::Tensor wide = right.to(at::kDouble);
  const at::Tensor finite = at::where(wide.isfinite(), wide, 0.0);
  const at::Tensor offset = finite.abs().max().add(1.0).mul(kFactor);
  at::Tensor changed = finite.ne(0.0);
  if (!changed.any().item<bool>()) changed = at::ones_like(changed);
  return at::where(changed, finite.add(offset), wide).to(right.scalar_type());
}

bool WrongResults::asked_for(std::string_view tensor) const {
  return std::ranges::find(tensors_, tensor) != tensors_.end();
}

void WrongResults::change(std::string_view name, at::Tensor& result) {
  result = wrong_values(result);
  if (!changed_.emplace(name).second) return;
  fmt::print(stderr, "cp-pool-worker: rank {}: injected fault wrong={}\n", rank_, name);
}

void WrongResults::operator()(std::string_view tensor, bool repeated, at::Tensor& result) {
  if (asked_for(tensor)) change(tensor, result);
  if (!repeated) return;
  for (const auto& [name, of] : {std::pair{kRepeatedOut, "out"}, std::pair{kRepeatedDq, "dq"}}) {
    if (tensor == of && asked_for(name)) change(name, result);
  }
}

void WrongResults::name_missing() const {
  for (const std::string& tensor : tensors_) {
    if (changed_.contains(tensor)) continue;
    fmt::print(stderr, "cp-pool-worker: rank {}: injected fault wrong={}: this case has no {}\n", rank_, tensor,
               tensor);
  }
}

}  // namespace cp_pool
