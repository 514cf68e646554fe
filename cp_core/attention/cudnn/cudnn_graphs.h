// cuDNN's scaled dot product attention, forward and backward, as graphs that are described, built and executed. The one
// unit behind this header is the only one that includes cudnn_frontend.h.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <c10/core/ScalarType.h>

namespace cp_pool {

// cuDNN's terms: right_bound is inclusive, left_bound exclusive, both around the diagonal; without bounds all is seen.
struct CudnnMask {
  bool bottom_right = false;  // else the diagonal starts at the top left
  std::optional<std::int64_t> left_bound;
  std::optional<std::int64_t> right_bound;
  bool padding = false;  // the lengths of each batch item come in seq_len_q and seq_len_kv

  auto operator<=>(const CudnnMask&) const = default;
};

// Everything that a plan depends on: equal descriptions can share a plan. A batch item has its rows [row, head, dim]
// one after the other; strides are the distance between batch items in elements.
struct CudnnGraph {
  bool backward = false;
  bool deterministic = false;  // of the backward
  c10::ScalarType dtype = c10::ScalarType::BFloat16;
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t m = 0;  // queries a batch item; ragged: at most
  std::int64_t n = 0;  // keys a batch item; ragged: at most
  std::int64_t head_dim_qk = 0;
  std::int64_t head_dim_v = 0;
  double scale = 1.0;
  CudnnMask mask;
  // A row has so many heads, of which the graph has some, in its inputs and in dq, dk and dv: 0 for the graph's own,
  // else not ragged, and gradients lie as q, k and v do.
  std::int64_t row_heads = 0;
  std::int64_t row_kv_heads = 0;
  // Batch items lie anywhere: their first elements come as offsets. mask.padding is set.
  bool ragged = false;
  std::int64_t q_rows = 0;  // ragged: rows of all batch items, at most
  std::int64_t k_rows = 0;
  // Not ragged. Of q; k; v; and of out and dout in the backward. What the graph writes has no gaps,
  // unless row_heads says so.
  std::int64_t q_stride = 0;
  std::int64_t k_stride = 0;
  std::int64_t v_stride = 0;
  std::int64_t out_stride = 0;
  std::int64_t bias_heads = 0;  // 0: no bias; else [1, 1 or heads, m, n] without gaps, for a batch of one
  bool dbias = false;           // [1, heads, m, n] without gaps, which must be 0 before

  auto operator<=>(const CudnnGraph&) const = default;
};

// Tensors of a graph. q, k, v, out, dout, bias and all gradients are of the graph's dtype. stats is fp32: [batch,
// heads, m], or [rows, heads] if ragged. seq_len_* are int32 [batch]; offset_* are int32 [batch + 1], in elements.
// Every pointer is a multiple of 16.
enum class CudnnTensor : std::int64_t {
  q = 1,
  k,
  v,
  out,
  stats,
  dout,
  dq,
  dk,
  dv,
  bias,
  dbias,
  seq_len_q,
  seq_len_kv,
  offset_q,
  offset_k,
  offset_v,
  offset_out,
  offset_stats,
};

class CudnnPlan {
 public:
  using Pointers = std::unordered_map<std::int64_t, void*>;

  CudnnPlan() = default;
  CudnnPlan(const CudnnPlan&) = delete;
  CudnnPlan& operator=(const CudnnPlan&) = delete;
  virtual ~CudnnPlan() = default;

  [[nodiscard]] virtual std::int64_t workspace_bytes() const = 0;
  // Enqueues the plan on this thread's current stream. pointers: by CudnnTensor, all tensors of the graph. Callable
  // from any thread. Throws std::runtime_error.
  virtual void execute(Pointers& pointers, void* workspace) const = 0;
  // Returns the bytes that load_cudnn_plan reads. Throws std::runtime_error.
  [[nodiscard]] virtual std::vector<std::uint8_t> serialized() const = 0;
};

// Takes tens of milliseconds, and most of a second for the first of a kind. Any thread; the current device. Throws
// BackendUnsupported, quoting cuDNN.
std::unique_ptr<const CudnnPlan> build_cudnn_plan(const CudnnGraph& graph);

// The plan that gave these bytes, in this process or another with the same cudnn_plan_environment. Any thread; the
// current device. Throws std::runtime_error.
std::unique_ptr<const CudnnPlan> load_cudnn_plan(const std::vector<std::uint8_t>& bytes);

// All that a plan depends on besides its graph: versions of the libraries, the driver and the code that builds graphs,
// and the kind of the current device.
std::string cudnn_plan_environment();

}  // namespace cp_pool
