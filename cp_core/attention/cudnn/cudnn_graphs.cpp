#include "cp_core/attention/cudnn/cudnn_graphs.h"

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

// The frontend's copy of nlohmann/json writes floats differently from the program's. A namespace of its own keeps the
// linker from merging the two.
#define NLOHMANN_JSON_NAMESPACE nlohmann::of_cudnn_frontend
#define NLOHMANN_JSON_NAMESPACE_BEGIN \
  namespace nlohmann {                \
  inline namespace of_cudnn_frontend {
#define NLOHMANN_JSON_NAMESPACE_END \
  }                                 \
  }
#include <cudnn_frontend.h>

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cudnn/Handle.h>
#include <c10/cuda/CUDAException.h>
#include <fmt/format.h>

#include "cp_core/attention/backend_unsupported.h"

namespace cp_pool {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Sizes = std::vector<std::int64_t>;

std::string describe(const CudnnGraph& g) {
  const auto bound = [](const std::optional<std::int64_t>& b) { return b ? std::to_string(*b) : std::string("none"); };
  return fmt::format(
      "{}{} of batch {}, heads {} / {}, {} queries, {} keys, head dimensions {} / {}, diagonal from the {} with bounds "
      "{} and {}{}{}{}",
      g.ragged ? "ragged " : "", g.backward ? "attention backward" : "attention forward", g.batch, g.heads, g.kv_heads,
      g.m, g.n, g.head_dim_qk, g.head_dim_v, g.mask.bottom_right ? "bottom right" : "top left",
      bound(g.mask.left_bound), bound(g.mask.right_bound), g.mask.padding ? ", padded" : "",
      g.bias_heads > 0 ? ", with bias" : "", g.deterministic ? ", deterministic" : "");
}

void check(fe::error_t status, const CudnnGraph& graph) {
  if (status.is_good()) return;
  throw BackendUnsupported(fmt::format("cuDNN refuses {}: {}", describe(graph), status.get_message()));
}

fe::DataType_t data_type(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::BFloat16:
      return fe::DataType_t::BFLOAT16;
    case c10::ScalarType::Half:
      return fe::DataType_t::HALF;
    default:
      throw BackendUnsupported("cuDNN's fused attention computes in bf16 and fp16 only");
  }
}

// Adds a tensor to the graph, with the uid by which CudnnPlan::Pointers names it.
Tensor tensor(fe::graph::Graph& graph, CudnnTensor name, const Sizes& dim, const Sizes& stride, fe::DataType_t type) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_uid(static_cast<std::int64_t>(name))
                          .set_dim(dim)
                          .set_stride(stride)
                          .set_data_type(type));
}

void set_output(const Tensor& output, CudnnTensor name, const Sizes& dim, const Sizes& stride, fe::DataType_t type) {
  output->set_output(true).set_uid(static_cast<std::int64_t>(name)).set_dim(dim).set_stride(stride).set_data_type(type);
}

// The sizes and strides of rows [row, head, dim] as cuDNN's [batch, heads, rows, dim].
struct RowTensor {
  // row_heads: the heads of a row in memory, if they are more than `heads`; else 0.
  RowTensor(const CudnnGraph& g, std::int64_t heads, std::int64_t row_heads, std::int64_t rows, std::int64_t head_dim,
            std::int64_t item_stride)
      : dim{g.batch, heads, rows, head_dim},
        stride{g.ragged || item_stride == 0 ? rows * heads * head_dim : item_stride, head_dim,
               (row_heads == 0 ? heads : row_heads) * head_dim, 1} {}

  Sizes dim;
  Sizes stride;
};

// Builds a graph from its description.
class Builder {
 public:
  explicit Builder(const CudnnGraph& description) : g_(description), type_(data_type(description.dtype)) {
    graph_->set_io_data_type(type_)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (g_.ragged) {
      offset_q_ = offsets(CudnnTensor::offset_q);
      offset_k_ = offsets(CudnnTensor::offset_k);
      offset_v_ = offsets(CudnnTensor::offset_v);
      offset_out_ = offsets(CudnnTensor::offset_out);
      offset_stats_ = offsets(CudnnTensor::offset_stats);
    }
    q_ = rows(CudnnTensor::q, g_.heads, g_.m, g_.head_dim_qk, g_.q_stride, offset_q_);
    k_ = rows(CudnnTensor::k, g_.kv_heads, g_.n, g_.head_dim_qk, g_.k_stride, offset_k_);
    v_ = rows(CudnnTensor::v, g_.kv_heads, g_.n, g_.head_dim_v, g_.v_stride, offset_v_);
  }

  std::shared_ptr<fe::graph::Graph> build() {
    if (g_.backward) {
      add_backward();
    } else {
      add_forward();
    }
    cudnnHandle_t handle = at::native::getCudnnHandle();
    check(graph_->build(handle, {fe::HeurMode_t::A}), g_);
    return graph_;
  }

 private:
  Tensor rows(CudnnTensor name, std::int64_t heads, std::int64_t count, std::int64_t head_dim, std::int64_t stride,
              const Tensor& offset) {
    const RowTensor shape(g_, heads, name == CudnnTensor::k || name == CudnnTensor::v ? g_.row_kv_heads : g_.row_heads,
                          count, head_dim, stride);
    Tensor result = tensor(*graph_, name, shape.dim, shape.stride, type_);
    if (offset) result->set_ragged_offset(offset);
    return result;
  }

  void set_output_rows(const Tensor& output, CudnnTensor name, std::int64_t heads, std::int64_t count,
                       std::int64_t head_dim, const Tensor& offset) const {
    const RowTensor shape(g_, heads, 0, count, head_dim, 0);
    set_output(output, name, shape.dim, shape.stride, type_);
    if (offset) output->set_ragged_offset(offset);
  }

  // Gives a gradient the strides of `input` if rows have more heads than the graph; else it has no gaps.
  void set_gradient_rows(const Tensor& output, CudnnTensor name, const Tensor& input, const Tensor& offset) const {
    const Sizes dim = input->get_dim();
    if (g_.row_heads > 0) return set_output(output, name, dim, input->get_stride(), type_);
    set_output_rows(output, name, dim[1], dim[2], dim[3], offset);
  }

  Tensor offsets(CudnnTensor name) {
    return tensor(*graph_, name, {g_.batch + 1, 1, 1, 1}, {1, 1, 1, 1}, fe::DataType_t::INT32);
  }
  Tensor lengths(CudnnTensor name) {
    return tensor(*graph_, name, {g_.batch, 1, 1, 1}, {1, 1, 1, 1}, fe::DataType_t::INT32);
  }

  // Before 9.26 cuDNN's backward takes no other order than [batch, heads, m, 1] in graphs that are not ragged.
  [[nodiscard]] Sizes stats_dim() const { return {g_.batch, g_.heads, g_.m, 1}; }
  [[nodiscard]] Sizes stats_stride() const {
    return g_.ragged ? Sizes{g_.heads * g_.m, 1, g_.heads, 1} : Sizes{g_.heads * g_.m, g_.m, 1, 1};
  }

  // Sets the scale, the mask and the bias, which the attributes of both passes have.
  template <typename Attributes>
  void set_mask(Attributes& attributes) {
    attributes.set_attn_scale(static_cast<float>(g_.scale));
    if (g_.mask.padding) {
      attributes.set_padding_mask(true)
          .set_seq_len_q(lengths(CudnnTensor::seq_len_q))
          .set_seq_len_kv(lengths(CudnnTensor::seq_len_kv));
    }
    if (g_.mask.left_bound || g_.mask.right_bound) {
      attributes.set_diagonal_alignment(g_.mask.bottom_right ? fe::DiagonalAlignment_t::BOTTOM_RIGHT
                                                             : fe::DiagonalAlignment_t::TOP_LEFT);
    }
    if (g_.mask.left_bound) attributes.set_diagonal_band_left_bound(static_cast<int>(*g_.mask.left_bound));
    if (g_.mask.right_bound) attributes.set_diagonal_band_right_bound(static_cast<int>(*g_.mask.right_bound));
    if (g_.bias_heads > 0) {
      const Sizes dim{1, g_.bias_heads, g_.m, g_.n};
      attributes.set_bias(tensor(*graph_, CudnnTensor::bias, dim, score_stride(g_.bias_heads), type_));
    }
  }

  [[nodiscard]] Sizes score_stride(std::int64_t heads) const { return {heads * g_.m * g_.n, g_.m * g_.n, g_.n, 1}; }

  void add_forward() {
    auto attributes = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
    set_mask(attributes);
    const auto [out, stats] = graph_->sdpa(q_, k_, v_, attributes);
    set_output_rows(out, CudnnTensor::out, g_.heads, g_.m, g_.head_dim_v, offset_out_);
    set_output(stats, CudnnTensor::stats, stats_dim(), stats_stride(), fe::DataType_t::FLOAT);
    if (g_.ragged) stats->set_ragged_offset(offset_stats_);
  }

  void add_backward() {
    auto attributes = fe::graph::SDPA_backward_attributes()
                          .set_name("attention_backward")
                          .set_deterministic_algorithm(g_.deterministic);
    set_mask(attributes);
    if (g_.ragged) attributes.set_max_total_seq_len_q(g_.q_rows).set_max_total_seq_len_kv(g_.k_rows);
    if (g_.dbias) {
      const Sizes dim{1, g_.heads, g_.m, g_.n};
      attributes.set_dbias(tensor(*graph_, CudnnTensor::dbias, dim, score_stride(g_.heads), type_));
    }
    const Tensor out = rows(CudnnTensor::out, g_.heads, g_.m, g_.head_dim_v, g_.out_stride, offset_out_);
    const Tensor dout = rows(CudnnTensor::dout, g_.heads, g_.m, g_.head_dim_v, g_.out_stride, offset_out_);
    const Tensor stats = tensor(*graph_, CudnnTensor::stats, stats_dim(), stats_stride(), fe::DataType_t::FLOAT);
    if (g_.ragged) stats->set_ragged_offset(offset_stats_);
    const auto [dq, dk, dv] = graph_->sdpa_backward(q_, k_, v_, out, dout, stats, attributes);
    set_gradient_rows(dq, CudnnTensor::dq, q_, offset_q_);
    set_gradient_rows(dk, CudnnTensor::dk, k_, offset_k_);
    set_gradient_rows(dv, CudnnTensor::dv, v_, offset_v_);
  }

  const CudnnGraph& g_;
  fe::DataType_t type_;
  std::shared_ptr<fe::graph::Graph> graph_ = std::make_shared<fe::graph::Graph>();
  Tensor offset_q_, offset_k_, offset_v_, offset_out_, offset_stats_;
  Tensor q_, k_, v_;
};

void require(fe::error_t status) {
  if (status.is_bad()) throw std::runtime_error("cuDNN attention: " + status.get_message());
}

// Loads a graph that can be executed, but has no description of its operations.
std::shared_ptr<fe::graph::Graph> load(const std::vector<std::uint8_t>& bytes) {
  constexpr bool kMustHaveAPlan = true;
  constexpr bool kWithWarmup = false;  // a plan that is built has no warm-up either
  auto graph = std::make_shared<fe::graph::Graph>();
  cudnnHandle_t handle = at::native::getCudnnHandle();
  try {
    require(graph->deserialize(handle, bytes, kMustHaveAPlan, kWithWarmup));
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(fmt::format("cuDNN attention: a serialized plan: {}", error.what()));
  }
  return graph;
}

// One line that names the kernel part of the driver; empty where the system has none.
std::string driver_build() {
  std::string line;
  std::getline(std::ifstream("/proc/driver/nvidia/version"), line);
  return line;
}

class Plan final : public CudnnPlan {
 public:
  explicit Plan(const CudnnGraph& description) : graph_(Builder(description).build()) {
    check(graph_->get_workspace_size(workspace_bytes_), description);
  }
  explicit Plan(const std::vector<std::uint8_t>& bytes) : graph_(load(bytes)) {
    require(graph_->get_workspace_size(workspace_bytes_));
  }

  [[nodiscard]] std::int64_t workspace_bytes() const override { return workspace_bytes_; }

  void execute(Pointers& pointers, void* workspace) const override {
    cudnnHandle_t handle = at::native::getCudnnHandle();
    require(graph_->execute(handle, pointers, workspace));
  }

  [[nodiscard]] std::vector<std::uint8_t> serialized() const override {
    constexpr bool kWithStructure = false;
    std::vector<std::uint8_t> bytes;
    require(graph_->serialize(bytes, kWithStructure));
    return bytes;
  }

 private:
  std::shared_ptr<const fe::graph::Graph> graph_;
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<const CudnnPlan> build_cudnn_plan(const CudnnGraph& graph) {
  return std::make_unique<const Plan>(graph);
}

std::unique_ptr<const CudnnPlan> load_cudnn_plan(const std::vector<std::uint8_t>& bytes) {
  return std::make_unique<const Plan>(bytes);
}

std::string cudnn_plan_environment() {
  static const std::string driver = driver_build();
  int cuda_of_driver = 0;
  int runtime = 0;
  C10_CUDA_CHECK(cudaDriverGetVersion(&cuda_of_driver));
  C10_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  const cudaDeviceProp& device = *at::cuda::getCurrentDeviceProperties();
  return fmt::format(
      "graphs {}, cuDNN {} (headers {}), frontend {}, CUDA {} (driver {}; {}), {}, compute capability {}.{}, {} "
      "multiprocessors",
      CP_POOL_GRAPH_SOURCES, cudnnGetVersion(), CUDNN_VERSION, CUDNN_FRONTEND_VERSION, runtime, cuda_of_driver, driver,
      static_cast<const char*>(device.name), device.major, device.minor, device.multiProcessorCount);
}

}  // namespace cp_pool
