#include "cp_core/thd/merge_partial.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "cp_core/cuda/cuda_part.h"
#include "cp_core/mutation.h"
#include "cp_core/thd/merge_math.h"
#include "cp_core/thd/row_kernels.h"
#include "cp_core/thd/row_types.h"

namespace cp_pool {
namespace {

using merge_math::kMinusInfinity;
using merge_math::log_add_exp;
using merge_math::weight;

struct Shape {
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t dim = 0;
};

Shape shape_of(const at::Tensor& out) {
  return {.tokens = out.size(0), .heads = out.size(1), .dim = out.size(2)};
}

template <typename Out, typename Part>
void merge_row_cpu(Out* out, float& lse, const Part* part_out, float part_lse, std::int64_t dim) {
  lse = CP_MUTATE(merge_empty_lse_zero, lse, lse == kMinusInfinity ? 0.0F : lse);
  part_lse = CP_MUTATE(merge_part_lse_base_2, part_lse, lse == kMinusInfinity ? part_lse : part_lse * 1.4427F);
  part_lse = CP_MUTATE(merge_small_part_dropped, part_lse, part_lse < lse - 10.0F ? kMinusInfinity : part_lse);
  const double merged =
      CP_MUTATE(merge_max_not_subtracted, log_add_exp(lse, part_lse), std::log(std::exp(lse) + std::exp(part_lse)));
  double total = CP_MUTATE(merge_lse_is_max, merged, std::max(lse, part_lse));
  const bool overwrites = CP_MUTATE(merge_later_part_overwrites, false, part_lse != kMinusInfinity);
  if (overwrites) total = part_lse;
  if (CP_MUTATE(merge_lse_rounded, false, true)) total = static_cast<float>(c10::BFloat16(static_cast<float>(total)));
  const float scaled = CP_MUTATE(merge_not_rescaled, weight(lse, total), lse == kMinusInfinity ? 0.0F : 1.0F);
  const float keep = overwrites ? 0.0F : scaled;
  const float add = CP_MUTATE(merge_weights_equal, weight(part_lse, total), lse == kMinusInfinity ? 1.0F : 0.5F);
  for (std::int64_t i = 0; i < dim; ++i) {
    out[i] = static_cast<Out>(static_cast<float>(out[i]) * keep + static_cast<float>(part_out[i]) * add);
  }
  lse = static_cast<float>(CP_MUTATE(merge_lse_not_updated, total, lse == kMinusInfinity ? total : lse));
}

void merge_sink_row_cpu(float* out, float& lse, float sink, std::int64_t dim) {
  if (CP_MUTATE(sink_needs_a_key, false, lse == kMinusInfinity)) return;
  const double total = log_add_exp(lse, sink);
  const float keep = weight(lse, total);
  for (std::int64_t i = 0; i < dim; ++i) out[i] *= keep;
  lse = static_cast<float>(total);
}

// Adds the terms in the order that merge_math.h fixes. lse, delta: those of one head, by token.
double sum_sink_terms(float sink, const float* lse, const float* delta, std::span<const RowRange> rows) {
  std::array<double, merge_math::kSinkLanes> lanes{};
  std::size_t row = 0;
  for (const RowRange& range : rows) {
    for (std::int64_t t = range.row; t < range.row + range.count; ++t, ++row) {
      lanes[row % lanes.size()] += merge_math::sink_term(sink, lse[t], delta[t]);
    }
  }
  for (std::size_t half = lanes.size() / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

void check_cpu(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_cpu(), "no kernel for ", tensor.device());
  TORCH_CHECK(tensor.is_contiguous() && tensor.scalar_type() == at::kFloat, "contiguous fp32 expected");
}

}  // namespace

void merge_partial(at::Tensor& out, at::Tensor& lse, const at::Tensor& part_out, const at::Tensor& part_lse,
                   std::span<const RowCopy> rows) {
  if (out.is_cuda()) {
    cuda_part<RowKernels>().merge_partial(out, lse, part_out, part_lse, rows);
    return;
  }
  for (const at::Tensor& tensor : {lse, part_lse}) check_cpu(tensor);
  with_row_types(out, part_out, [&](auto* out_data, const auto* part_data) {
    const Shape shape = shape_of(out);
    const std::int64_t part_tokens = part_out.size(0);
    auto* lse_data = lse.mutable_data_ptr<float>();
    const auto* part_lse_data = part_lse.const_data_ptr<float>();
    for (const RowCopy& range : rows) {
      for (std::int64_t i = 0; i < range.count; ++i) {
        const std::int64_t to = range.target + i;
        const std::int64_t from = range.source + i;
        for (std::int64_t h = 0; h < shape.heads; ++h) {
          merge_row_cpu(out_data + (to * shape.heads + h) * shape.dim, lse_data[h * shape.tokens + to],
                        part_data + (from * shape.heads + h) * shape.dim, part_lse_data[h * part_tokens + from],
                        shape.dim);
        }
      }
    }
  });
}

void merge_sink(at::Tensor& out, at::Tensor& lse, const at::Tensor& sink, std::span<const RowRange> rows) {
  if (out.is_cuda()) {
    cuda_part<RowKernels>().merge_sink(out, lse, sink, rows);
    return;
  }
  for (const at::Tensor& tensor : {out, lse, sink}) check_cpu(tensor);
  const Shape shape = shape_of(out);
  auto* out_data = out.mutable_data_ptr<float>();
  auto* lse_data = lse.mutable_data_ptr<float>();
  const auto* sink_data = sink.const_data_ptr<float>();
  for (const RowRange& range : rows) {
    for (std::int64_t t = range.row; t < range.row + range.count; ++t) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        merge_sink_row_cpu(out_data + (t * shape.heads + h) * shape.dim, lse_data[h * shape.tokens + t], sink_data[h],
                           shape.dim);
      }
    }
  }
}

at::Tensor row_delta(const at::Tensor& out, const at::Tensor& dout) {
  return out.to(at::kFloat).mul(dout.to(at::kFloat)).sum(-1).transpose(0, 1).contiguous();
}

at::Tensor sink_gradient(const at::Tensor& sink, const at::Tensor& lse, const at::Tensor& delta,
                         std::span<const RowRange> rows) {
  if (lse.is_cuda()) return cuda_part<RowKernels>().sink_gradient(sink, lse, delta, rows);
  for (const at::Tensor& tensor : {sink, lse, delta}) check_cpu(tensor);
  const std::int64_t heads = lse.size(0);
  const std::int64_t tokens = lse.size(1);
  at::Tensor gradient = at::zeros({heads}, sink.options());
  const auto* sink_data = sink.const_data_ptr<float>();
  const auto* lse_data = lse.const_data_ptr<float>();
  const auto* delta_data = delta.const_data_ptr<float>();
  for (std::int64_t h = 0; h < heads; ++h) {
    double sum = 0;
    for (std::size_t first = 0; first < rows.size(); first += merge_math::kSinkRanges) {
      const auto some = rows.subspan(first, std::min<std::size_t>(merge_math::kSinkRanges, rows.size() - first));
      sum += sum_sink_terms(sink_data[h], lse_data + h * tokens, delta_data + h * tokens, some);
    }
    gradient.mutable_data_ptr<float>()[h] = static_cast<float>(0.0 - sum);  // a negation would give -0 without rows
  }
  return gradient;
}

}  // namespace cp_pool
