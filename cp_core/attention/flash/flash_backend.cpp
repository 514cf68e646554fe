// FlashAttention 2, through ATen: bf16 and fp16, head dimensions up to 256, no bias.
#include <algorithm>
#include <optional>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <fmt/format.h>

#include "cp_core/attention/backend_unsupported.h"
#include "cp_core/attention/cuda_backends.h"
#include "cp_core/attention/flash/flash_window.h"
#include "cp_core/attention/library_kernels.h"
#include "cp_core/attention/tile_batches.h"
#include "cp_core/attention/tile_rows.h"
#include "cp_core/attention/tile_scores.h"

namespace cp_pool {
namespace {

using cuda::StatisticLayout;

constexpr std::int64_t kLargestFlashHeadDim = 256;

void require_flash_support(const AttentionOperands& operands) {
  if (operands.bias.defined()) throw BackendUnsupported("FlashAttention takes no bias");
  const at::ScalarType dtype = operands.q.scalar_type();
  if (dtype != at::kBFloat16 && dtype != at::kHalf) {
    throw BackendUnsupported("FlashAttention computes in bf16 and fp16 only");
  }
  const std::int64_t dim = std::max(operands.q.size(2), operands.v.size(2));
  if (dim > kLargestFlashHeadDim) {
    throw BackendUnsupported(
        fmt::format("FlashAttention takes head dimensions up to {}, not {}", kLargestFlashHeadDim, dim));
  }
}

// The kernels take one head dimension for q, k and v.
std::int64_t kernel_head_dim(const AttentionOperands& operands) {
  return rounded_head_dim(std::max(operands.q.size(2), operands.v.size(2)));
}

// The arguments of one kernel call, which computes one batch.
class Call {
 public:
  virtual ~Call() = default;
  // The batch's rows of a packed tensor [tokens, heads, dim], in the shape that the kernel takes.
  [[nodiscard]] virtual at::Tensor queries(const at::Tensor& rows) const = 0;
  [[nodiscard]] virtual at::Tensor keys(const at::Tensor& rows) const = 0;
  // The batch's part of a statistic [heads, tokens], in the shape that the backward takes.
  [[nodiscard]] virtual at::Tensor statistic(const at::Tensor& statistic) const = 0;
  [[nodiscard]] virtual StatisticLayout statistic_layout(std::int64_t heads) const = 0;

  FlashWindow window;
  at::Tensor cu_seqlens_q;  // undefined in a call with fixed lengths
  at::Tensor cu_seqlens_k;
  std::int64_t max_q = 0;
  std::int64_t max_k = 0;
  // The tiles' rows in packed tensors (source) and in the kernel's outputs (target).
  std::vector<RowCopy> q_rows;
  std::vector<RowCopy> k_rows;
};

class FixedLengthCall final : public Call {
 public:
  FixedLengthCall(const UniformTiles& tiles, const FlashWindow& group_window) : tiles_(tiles) {
    window = group_window;
    max_q = tiles.m;
    max_k = tiles.n;
    for (std::int64_t b = 0; b < tiles.batch; ++b) {
      q_rows.push_back({.source = tiles.q_row + b * tiles.q_stride, .target = b * tiles.m, .count = tiles.m});
      k_rows.push_back({.source = tiles.k_row + b * tiles.k_stride, .target = b * tiles.n, .count = tiles.n});
    }
  }

  [[nodiscard]] at::Tensor queries(const at::Tensor& rows) const override {
    return batch_view(rows, tiles_.q_row, tiles_.q_stride, tiles_.m);
  }
  [[nodiscard]] at::Tensor keys(const at::Tensor& rows) const override {
    return batch_view(rows, tiles_.k_row, tiles_.k_stride, tiles_.n);
  }
  [[nodiscard]] at::Tensor statistic(const at::Tensor& statistic) const override {
    const std::int64_t heads = statistic.size(0);
    return statistic
        .as_strided({tiles_.batch, heads, tiles_.m}, {tiles_.q_stride, statistic.stride(0), 1},
                    statistic.storage_offset() + tiles_.q_row)
        .contiguous();
  }
  // [batch, heads, m]
  [[nodiscard]] StatisticLayout statistic_layout(std::int64_t heads) const override {
    return {.range_stride = (heads - 1) * tiles_.m, .head_stride = tiles_.m, .row_stride = 1};
  }

 private:
  [[nodiscard]] at::Tensor batch_view(const at::Tensor& rows, std::int64_t row, std::int64_t stride,
                                      std::int64_t count) const {
    return rows.as_strided({tiles_.batch, count, rows.size(1), rows.size(2)},
                           {stride * rows.stride(0), rows.stride(0), rows.stride(1), rows.stride(2)},
                           rows.storage_offset() + row * rows.stride(0));
  }

  UniformTiles tiles_;
};

class VariableLengthCall final : public Call {
 public:
  VariableLengthCall(const TileBatch& batch, const FlashWindow& group_window)
      : q_span_(query_span(batch)), k_span_(key_span(batch)) {
    window = group_window;
    const CumulativeLengths lengths = cumulative_lengths(batch);
    cu_seqlens_q = cuda::device_ints(lengths.q);
    cu_seqlens_k = cuda::device_ints(lengths.k);
    const LargestTile largest = largest_tile(batch);
    // With a max_q of 1 the kernel would assume one query in every sequence, which is wrong for gaps.
    max_q = std::max<std::int64_t>(largest.m, 2);
    max_k = window.max_seqlen_k(largest.m, largest.n);
    for (const Tile& tile : batch) {
      q_rows.push_back({.source = tile.q_row, .target = tile.q_row - q_span_.row, .count = tile.m});
      k_rows.push_back({.source = tile.k_row, .target = tile.k_row - k_span_.row, .count = tile.n});
    }
  }

  [[nodiscard]] at::Tensor queries(const at::Tensor& rows) const override {
    return rows.narrow(0, q_span_.row, q_span_.count);
  }
  [[nodiscard]] at::Tensor keys(const at::Tensor& rows) const override {
    return rows.narrow(0, k_span_.row, k_span_.count);
  }
  [[nodiscard]] at::Tensor statistic(const at::Tensor& statistic) const override {
    return statistic.narrow(1, q_span_.row, q_span_.count).contiguous();
  }
  // [heads, rows]
  [[nodiscard]] StatisticLayout statistic_layout(std::int64_t /*heads*/) const override {
    return {.range_stride = 0, .head_stride = q_span_.count, .row_stride = 1};
  }

 private:
  RowRange q_span_;
  RowRange k_span_;
};

std::unique_ptr<Call> make_call(const TileBatch& batch, const FlashWindow& window) {
  if (const auto tiles = uniform_tiles(batch); tiles && window.fits_fixed_length(tiles->m, tiles->n)) {
    return std::make_unique<FixedLengthCall>(*tiles, window);
  }
  return std::make_unique<VariableLengthCall>(batch, window);
}

// Calls body(call) for calls that together cover the group, below autograd: its wrappers refuse the undefined tensors
// that the operators are given.
template <typename Body>
void for_each_call(const TileGroup& group, Body body) {
  const at::AutoDispatchBelowAutograd no_autograd;
  const FlashWindow window{.left = group.left, .right = group.right};
  for (const TileBatch& batch : split_by_keys(group.tiles)) body(*make_call(batch, window));
}

std::optional<std::int64_t> finite(std::int64_t window) {
  return window == kInfiniteWindow ? std::nullopt : std::optional(window);
}

std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

// Gradients repeat bit by bit if at::globalContext().deterministicAlgorithms().
class FlashBackend final : public AttentionBackend {
 public:
  void forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) override;
  void backward(const TileGroup& group, const AttentionOperands& operands,
                const AttentionBackwardOperands& backward_operands, PendingSums& pending) override;
  [[nodiscard]] std::string refusal(const Case& c) const override;

  [[nodiscard]] bool computes_delta() const override { return true; }
};

}  // namespace

std::string FlashBackend::refusal(const Case& c) const {
  if (c.bias) return fmt::format("FlashAttention takes no bias; this case has one of shape {}", to_string(*c.bias));
  return library_refusal(c, "FlashAttention", kLargestFlashHeadDim);
}

void FlashBackend::forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) {
  require_flash_support(operands);
  const std::int64_t dim = kernel_head_dim(operands);
  const at::Tensor q = widened(operands.q, dim);
  const at::Tensor k = widened(operands.k, dim);
  const at::Tensor v = widened(operands.v, dim);
  for_each_call(group, [&](const Call& call) {
    const auto [out, lse, rng_state, unused, debug_mask] = at::_flash_attention_forward(
        call.queries(q), call.keys(k), call.keys(v), if_defined(call.cu_seqlens_q), if_defined(call.cu_seqlens_k),
        call.max_q, call.max_k, /*dropout_p=*/0.0, call.window.causal(), /*return_debug_mask=*/false, operands.scale,
        finite(call.window.left), finite(call.window.right));
    cuda::put_partial(out.contiguous(), lse, call.statistic_layout(q.size(1)), call.q_rows, partial);
  });
  if (partial.max_logit.defined()) raise_max_logit(group, operands, partial.max_logit);
}

void FlashBackend::backward(const TileGroup& group, const AttentionOperands& operands,
                            const AttentionBackwardOperands& backward_operands, PendingSums& pending) {
  require_flash_support(operands);
  TORCH_CHECK(backward_operands.out.defined(), "the backward of FlashAttention needs the forward's out");
  const std::int64_t dim = kernel_head_dim(operands);
  const at::Tensor q = widened(operands.q, dim);
  const at::Tensor k = widened(operands.k, dim);
  const at::Tensor v = widened(operands.v, dim);
  const at::Tensor dout = widened(backward_operands.dout, dim);
  const at::Tensor out = widened(backward_operands.out, dim);
  for_each_call(group, [&](const Call& call) {
    // The kernel reads the random state only with dropout.
    const auto [dq, dk, dv] = at::_flash_attention_backward(
        call.queries(dout), call.queries(q), call.keys(k), call.keys(v), call.queries(out),
        call.statistic(backward_operands.lse), call.cu_seqlens_q, call.cu_seqlens_k, call.max_q, call.max_k,
        /*dropout_p=*/0.0, call.window.causal(), /*rng_state=*/{}, /*unused=*/{}, operands.scale,
        finite(call.window.left), finite(call.window.right));
    pending.make_ready();
    cuda::add_rows(dq, call.q_rows, pending.sums.dq);
    cuda::add_rows(dk, call.k_rows, pending.sums.dk);
    cuda::add_rows(dv, call.k_rows, pending.sums.dv);
  });
}

std::unique_ptr<AttentionBackend> make_flash_backend() {
  return std::make_unique<FlashBackend>();
}

}  // namespace cp_pool
