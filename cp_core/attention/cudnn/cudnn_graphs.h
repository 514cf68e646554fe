// cuDNN's scaled dot product attention, forward and backward: describes graphs, and builds and executes their plans.
// cudnn_graphs.cpp is the only translation unit that includes cudnn_frontend.h.
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

// The mask in cuDNN's terms. Both bounds count from the diagonal, right_bound inclusive and left_bound exclusive; a
// side without a bound is unlimited.
struct CudnnMask {
  bool bottom_right = false;  // the diagonal ends at the bottom right; else it starts at the top left
  std::optional<std::int64_t> left_bound;
  std::optional<std::int64_t> right_bound;
  bool padding = false;  // the lengths of each batch item come in seq_len_q and seq_len_kv

  auto operator<=>(const CudnnMask&) const = default;
};

// The description of a graph. It has everything that a plan depends on, so equal descriptions share a plan. The rows
// [row, head, dim] of a batch item lie one after the other; strides are distances between batch items, in elements.
struct CudnnGraph {
  bool backward = false;
  bool deterministic = false;  // for the backward only
  c10::ScalarType dtype = c10::ScalarType::BFloat16;
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t m = 0;  // queries of a batch item; if ragged, the upper limit
  std::int64_t n = 0;  // keys of a batch item; if ragged, the upper limit
  std::int64_t head_dim_qk = 0;
  std::int64_t head_dim_v = 0;
  double scale = 1.0;
  CudnnMask mask;
  // The number of heads in a row of the tensors, if the graph computes only some of them; 0 if it computes all. Not for
  // ragged graphs. If set, dq, dk and dv have the strides of q, k and v.
  std::int64_t row_heads = 0;
  std::int64_t row_kv_heads = 0;
  // Batch items lie anywhere: offset_* say where their first elements are. mask.padding must be set.
  bool ragged = false;
  std::int64_t q_rows = 0;  // if ragged, the upper limit of the rows of all batch items; for the backward only
  std::int64_t k_rows = 0;
  // Strides of q, k, v, and of out and dout in the backward, for graphs that are not ragged. The outputs of the graph
  // have no gaps unless row_heads is set.
  std::int64_t q_stride = 0;
  std::int64_t k_stride = 0;
  std::int64_t v_stride = 0;
  std::int64_t out_stride = 0;
  std::int64_t bias_heads = 0;  // 0: no bias; else the bias is [1, bias_heads, m, n] without gaps, for a batch of one
  bool dbias = false;           // also compute dbias [1, heads, m, n] without gaps, which must be 0 before the call

  auto operator<=>(const CudnnGraph&) const = default;
};

// The tensors of a graph. q, k, v, out, dout, bias and all gradients have the graph's dtype. stats is fp32: [batch,
// heads, m], or [rows, heads] if ragged. seq_len_* are int32 [batch]; offset_* are int32 [batch + 1], in elements.
// Every pointer must be a multiple of 16 bytes.
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
  // Enqueues the plan on this thread's current stream. pointers: all tensors of the graph, by CudnnTensor. workspace:
  // device memory of workspace_bytes(). Callable from any thread. Throws std::runtime_error.
  virtual void execute(Pointers& pointers, void* workspace) const = 0;
  // Returns the bytes that load_cudnn_plan reads. Throws std::runtime_error.
  [[nodiscard]] virtual std::vector<std::uint8_t> serialized() const = 0;
};

// Builds the plan of a graph for the current device. Takes tens of milliseconds, and most of a second for the first of
// a kind. Callable from any thread. Throws BackendUnsupported, which quotes cuDNN.
std::unique_ptr<const CudnnPlan> build_cudnn_plan(const CudnnGraph& graph);

// Loads a plan for the current device from the bytes that serialized() returned, in this process or in another with the
// same cudnn_plan_environment. Callable from any thread. Throws std::runtime_error.
std::unique_ptr<const CudnnPlan> load_cudnn_plan(const std::vector<std::uint8_t>& bytes);

// Returns a line with everything that a plan depends on besides its graph: the versions of the libraries, of the driver
// and of the code that builds graphs, and the model of the current device.
std::string cudnn_plan_environment();

}  // namespace cp_pool
