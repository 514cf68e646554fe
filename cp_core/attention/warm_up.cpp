#include "cp_core/attention/warm_up.h"

#include <array>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include "cp_core/attention/cudnn_backend.h"

namespace cp_pool {
namespace {

at::TensorOptions on_device(at::ScalarType dtype) {
  return at::TensorOptions().device(at::kCUDA).dtype(dtype);
}

// Of the dtypes of the reference and its baseline.
void multiply() {
  constexpr std::array<std::int64_t, 3> kShape{2, 64, 64};
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const at::Tensor ones = at::ones(kShape, on_device(dtype));
    (void)at::bmm(ones, ones);
  }
}

void attend() {
  constexpr std::int64_t kTokens = 128;
  const TilePlan plan{{.left = kInfiniteWindow, .right = 0, .tiles = {{.m = kTokens, .n = kTokens, .right = 0}}}};
  const at::Tensor ones = at::ones({kTokens, 1, 128}, on_device(at::kBFloat16));
  const AttentionOperands operands{.q = ones, .k = ones, .v = ones, .bias = {}};
  CudnnBackend backend;
  const std::optional<WholeForward> forward = backend.forward_whole(plan, operands);
  TORCH_CHECK(forward, "cuDNN does not take one square tile");
  (void)backend.backward_whole(plan, operands, {.dout = ones, .lse = forward->lse, .delta = {}, .out = forward->out});
}

Preparation on(c10::DeviceIndex device, void (*body)()) {
  return [device, body] {
    const c10::cuda::CUDAGuard guard(device);
    const at::NoGradGuard no_grad;
    body();
  };
}

}  // namespace

std::vector<Preparation> warm_ups() {
  const c10::DeviceIndex device = c10::cuda::current_device();
  return {on(device, multiply), on(device, attend)};
}

}  // namespace cp_pool
