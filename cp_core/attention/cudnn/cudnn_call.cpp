#include "cp_core/attention/cudnn/cudnn_call.h"

#include <cstddef>
#include <utility>

#include <ATen/ops/empty.h>

#include "cp_core/attention/tile_batches.h"
#include "cp_core/thd/copy_rows.h"

namespace cp_pool {
namespace {

// Rows of zeros behind gathered ones. A kernel may read whole blocks of rows, and 0 * NaN is NaN.
constexpr std::int64_t kRowsBehind = 256;

at::Tensor gathered_rows(const at::Tensor& rows, const std::vector<RowCopy>& ranges) {
  const std::int64_t count = ranges.back().target + ranges.back().count;
  at::Tensor gathered = at::empty({count + kRowsBehind, rows.size(1), rows.size(2)}, rows.options());
  gathered.narrow(0, count, kRowsBehind).zero_();
  copy_rows(rows, gathered, ranges);
  return gathered;
}

std::vector<std::int32_t> differences(const std::vector<std::int32_t>& sums) {
  std::vector<std::int32_t> result;
  for (std::size_t i = 1; i < sums.size(); ++i) result.push_back(sums[i] - sums[i - 1]);
  return result;
}

std::vector<std::int32_t> scaled(const std::vector<std::int32_t>& rows, std::int64_t columns) {
  std::vector<std::int32_t> result;
  result.reserve(rows.size());
  for (const std::int32_t row : rows) result.push_back(static_cast<std::int32_t>(row * columns));
  return result;
}

// Several small integer tensors in one, so that one launch writes them all. Each begins at a multiple of 16 bytes.
class PackedInts {
 public:
  void append(CudnnTensor name, const std::vector<std::int32_t>& values) {
    begins_.emplace_back(name, values_.size());
    values_.insert(values_.end(), values.begin(), values.end());
    values_.resize((values_.size() + 3) / 4 * 4);
  }

  at::Tensor write(CudnnPlan::Pointers& pointers) const {
    at::Tensor ints = cuda::device_ints(values_);
    for (const auto& [name, begin] : begins_) {
      pointers[static_cast<std::int64_t>(name)] = ints.mutable_data_ptr<std::int32_t>() + begin;
    }
    return ints;
  }

 private:
  std::vector<std::int32_t> values_;
  std::vector<std::pair<CudnnTensor, std::size_t>> begins_;
};

}  // namespace

CudnnCall::CudnnCall(const PlannedBatch& planned) : batch_(planned.batch), plan_(planned.plan) {
  const CumulativeLengths& lengths = batch_.lengths();
  for (std::size_t i = 0; i < tiles().size(); ++i) {
    const Tile& tile = tiles()[i];
    q_rows_.push_back({.source = tile.q_row, .target = lengths.q[i], .count = tile.m});
    k_rows_.push_back({.source = tile.k_row, .target = lengths.k[i], .count = tile.n});
  }
}

void CudnnCall::bind(CudnnTensor name, const at::Tensor& tensor) {
  pointers_[static_cast<std::int64_t>(name)] = tensor.mutable_data_ptr();
  held_.push_back(tensor);
}

at::Tensor CudnnCall::buffer(CudnnTensor name, const at::Tensor& like, std::int64_t rows) {
  at::Tensor result = at::empty({rows, like.size(1), like.size(2)}, like.options());
  bind(name, result);
  return result;
}

at::Tensor CudnnCall::stats_buffer(const at::Tensor& q) {
  at::Tensor stats = at::empty({batch_.q_rows() * q.size(1)}, q.options().dtype(at::kFloat));
  bind(CudnnTensor::stats, stats);
  return stats;
}

cuda::StatisticLayout CudnnCall::stats_layout(std::int64_t heads) const {
  if (batch_.ragged()) return {.range_stride = 0, .head_stride = 1, .row_stride = heads};
  const std::int64_t m = batch_.uniform().m;
  return {.range_stride = (heads - 1) * m, .head_stride = m, .row_stride = 1};
}

void CudnnCall::execute(const AttentionOperands& operands) {
  if (plan_.graph.mask.padding) bind_lengths(operands);
  const at::Tensor workspace = at::empty({plan_.plan->workspace_bytes()}, operands.q.options().dtype(at::kByte));
  plan_.plan->execute(pointers_, workspace.mutable_data_ptr());
}

// Uniform tiles are read in place. Ragged ones are read in place if no other rows lie between or behind them, else from
// a copy without gaps: rows in gaps may be NaN, and a kernel may read them with weight 0.
void CudnnCall::bind_rows(CudnnTensor name, const at::Tensor& rows, const std::vector<RowCopy>& ranges,
                          const RowRange& span) {
  const bool gaps = ranges.back().target + ranges.back().count != span.count;
  const bool others_behind = span.row + span.count != rows.size(0);
  if (batch_.ragged() && (gaps || others_behind)) {
    bind(name, gathered_rows(rows, ranges));
  } else {
    bind(name, rows.narrow(0, span.row, span.count));
  }
}

void CudnnCall::bind_lengths(const AttentionOperands& operands) {
  const CumulativeLengths& lengths = batch_.lengths();
  const std::int64_t heads = operands.q.size(1);
  const std::int64_t kv_heads = operands.k.size(1);
  PackedInts ints;
  ints.append(CudnnTensor::seq_len_q, differences(lengths.q));
  ints.append(CudnnTensor::seq_len_kv, differences(lengths.k));
  if (batch_.ragged()) {
    ints.append(CudnnTensor::offset_q, scaled(lengths.q, heads * operands.q.size(2)));
    ints.append(CudnnTensor::offset_k, scaled(lengths.k, kv_heads * operands.k.size(2)));
    ints.append(CudnnTensor::offset_v, scaled(lengths.k, kv_heads * operands.v.size(2)));
    ints.append(CudnnTensor::offset_out, scaled(lengths.q, heads * operands.v.size(2)));
    ints.append(CudnnTensor::offset_stats, scaled(lengths.q, heads));
  }
  held_.push_back(ints.write(pointers_));
}

}  // namespace cp_pool
