#include "cp_core/attention/backend.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <c10/util/Exception.h>

#include "cp_core/attention/math_backend.h"
#include "cp_core/cuda/cuda_part.h"

namespace cp_pool {

at::Tensor delta_carrier(const at::Tensor& dout, const at::Tensor& delta) {
  const at::Tensor norm = at::linalg_vector_norm(dout, 2, at::IntArrayRef{-1}, /*keepdim=*/true, at::kFloat);
  // Where dout is 0, so is delta.
  const at::Tensor factor = delta.transpose(0, 1).unsqueeze(-1).div(norm).div_(norm).masked_fill_(norm.eq(0), 0);
  at::Tensor carrier = at::empty_like(dout);
  return at::mul_out(carrier, dout, factor);
}

void AttentionGradientSums::fill_dq() {
  if (dq_empty) dq.zero_();
  dq_empty = false;
}

void AttentionGradientSums::fill_dkv() {
  if (dkv_empty) {
    dk.zero_();
    dv.zero_();
  }
  dkv_empty = false;
}

bool covers_queries(const std::vector<Tile>& tiles, std::int64_t rows) {
  std::int64_t next = 0;
  for (const Tile& tile : tiles) {
    if (tile.q_row != next) return false;
    next += tile.m;
  }
  return next == rows;
}

std::unique_ptr<AttentionBackend> make_backend(Backend backend, const at::Device& device) {
  if (device.is_cuda()) return cuda_part().make_backend(backend);
  TORCH_CHECK(device.is_cpu(), "no ", std::string(to_string(backend)), " backend for ", device);
  return std::make_unique<MathBackend>();
}

}  // namespace cp_pool
