// One execution of a cuDNN plan, with its tensors bound to the rows of a batch.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/attention/backend.h"
#include "cp_core/attention/cudnn/cudnn_batch.h"
#include "cp_core/attention/cudnn/cudnn_graphs.h"
#include "cp_core/attention/tile_rows.h"

namespace cp_pool {

struct GraphPlan {
  CudnnGraph graph;
  std::shared_ptr<const CudnnPlan> plan;
};

struct PlannedBatch {
  CudnnBatch batch;
  GraphPlan plan;
};

// Holds the tensors that the kernel uses. They may be freed once it is launched, since the allocator reuses their
// memory on the same stream only.
class CudnnCall {
 public:
  // `planned` must outlive the call.
  explicit CudnnCall(const PlannedBatch& planned);

  // Bind inputs: packed tensors [tokens, heads, dim].
  void bind_queries(CudnnTensor name, const at::Tensor& rows) { bind_rows(name, rows, q_rows_, query_span(tiles())); }
  void bind_keys(CudnnTensor name, const at::Tensor& rows) { bind_rows(name, rows, k_rows_, key_span(tiles())); }
  // Binds a tensor that lies in memory as the graph describes it.
  void bind(CudnnTensor name, const at::Tensor& tensor);

  // Allocate and bind outputs [rows, heads, dim], which have the tiles' query rows, or key rows, one after the other.
  // like: has the heads, dim and options.
  at::Tensor query_buffer(CudnnTensor name, const at::Tensor& like) { return buffer(name, like, batch_.q_rows()); }
  at::Tensor key_buffer(CudnnTensor name, const at::Tensor& like) { return buffer(name, like, batch_.k_rows()); }

  // Allocates and binds stats, which is fp32 in stats_layout and may be an input or an output.
  at::Tensor stats_buffer(const at::Tensor& q);
  [[nodiscard]] cuda::StatisticLayout stats_layout(std::int64_t heads) const;

  // Launches the plan. operands: those that were bound; only sizes and options are read.
  void execute(const AttentionOperands& operands);

  // The tiles' rows in packed tensors (source) and in buffers (target).
  [[nodiscard]] const std::vector<RowCopy>& q_rows() const { return q_rows_; }
  [[nodiscard]] const std::vector<RowCopy>& k_rows() const { return k_rows_; }

 private:
  [[nodiscard]] const TileBatch& tiles() const { return batch_.tiles(); }
  at::Tensor buffer(CudnnTensor name, const at::Tensor& like, std::int64_t rows);
  void bind_rows(CudnnTensor name, const at::Tensor& rows, const std::vector<RowCopy>& ranges, const RowRange& span);
  void bind_lengths(const AttentionOperands& operands);

  const CudnnBatch& batch_;
  const GraphPlan& plan_;
  std::vector<RowCopy> q_rows_;
  std::vector<RowCopy> k_rows_;
  CudnnPlan::Pointers pointers_;
  std::vector<at::Tensor> held_;
};

}  // namespace cp_pool
