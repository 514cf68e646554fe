// Plans of cuDNN that were serialised and loaded give the same bits as the plans that were built. The tests also print
// how long building, serialising and loading take.
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"
#include "cp_core/attention/cudnn/cudnn_batch_plans.h"
#include "cp_core/attention/cudnn/cudnn_call.h"
#include "cp_core/attention/cudnn/plan_store.h"
#include "cp_core/attention/tile_rows.h"
#include "cp_core/testing/tile_group_cases.h"
#include "cp_core/testing/tile_groups_on_gpu.h"

namespace cp_pool {
namespace {

namespace fs = std::filesystem;
using test::GroupCase;
using test::GroupInputs;
using test::TileShape;
using Tensors = std::vector<at::Tensor>;
using PlanOfTest = std::shared_ptr<const CudnnPlan>;

// Runs in deterministic mode, so that results can be compared bit by bit.
class GpuPlans : public test::GpuBackendTest {
 protected:
  void SetUp() override {
    test::GpuBackendTest::SetUp();
    at::globalContext().setDeterministicAlgorithms(true, false);
  }
};

struct PlanProblem {
  GroupCase c;
  GroupInputs inputs;  // on the GPU

  PlanProblem(const std::string& name, const TileShape& shape)
      : c(test::group_case(name)), inputs(test::on_gpu(test::make_group_inputs(c, shape, at::kBFloat16, {}))) {}

  [[nodiscard]] std::vector<PlannedBatch> batches(Pass pass) const {
    return plan_batches(c.group, inputs.operands, pass);
  }
};

// The results of a call of the batch with this plan.
Tensors results_of(const PlanProblem& problem, const PlannedBatch& batch, const PlanOfTest& plan) {
  const AttentionOperands& operands = problem.inputs.operands;
  const AttentionBackwardOperands& backward = problem.inputs.backward;
  const PlannedBatch planned{.batch = batch.batch, .plan = {.graph = batch.plan.graph, .plan = plan}};
  CudnnCall call(planned);
  call.bind_queries(CudnnTensor::q, operands.q);
  call.bind_keys(CudnnTensor::k, operands.k);
  call.bind_keys(CudnnTensor::v, operands.v);
  Tensors results;
  if (planned.plan.graph.backward) {
    call.bind_queries(CudnnTensor::out, backward.out);
    call.bind_queries(CudnnTensor::dout, backward.dout);
    at::Tensor stats = call.stats_buffer(operands.q);
    cuda::gather_statistic(backward.lse, call.q_rows(), call.stats_layout(operands.q.size(1)), stats);
    results = {call.query_buffer(CudnnTensor::dq, operands.q), call.key_buffer(CudnnTensor::dk, operands.k),
               call.key_buffer(CudnnTensor::dv, operands.v)};
  } else {
    results = {call.query_buffer(CudnnTensor::out, backward.out), call.stats_buffer(operands.q)};
  }
  call.execute(operands);
  return results;
}

void expect_same_bits(const Tensors& got, const Tensors& expected, std::string_view what) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(test::same_bits(got.at(i), expected.at(i))) << what << ", result " << i;
  }
}

template <typename Work>
double milliseconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

TEST_F(GpuPlans, ReadBackGiveTheSameBits) {
  fmt::print("[ figures  ] {}\n", cudnn_plan_environment());
  for (const char* name : {"causal_square", "ragged_causal_gaps", "band_wide", "batch_full_gaps"}) {
    const PlanProblem problem(name, test::kGqa);
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      std::vector<PlannedBatch> batches;
      const double first_ms = milliseconds([&] { batches = problem.batches(pass); });
      for (const PlannedBatch& batch : batches) {
        const std::string what = fmt::format("{}, {}", name, name_of(pass));
        PlanOfTest built;
        const double build_ms = milliseconds([&] { built = build_cudnn_plan(batch.plan.graph); });
        PlanStore::Bytes bytes;
        const double serialize_ms = milliseconds([&] { bytes = built->serialized(); });
        PlanOfTest loaded;
        const double load_ms = milliseconds([&] { loaded = load_cudnn_plan(bytes); });
        fmt::print(
            "[ figures  ] {}: all batches first built {:.1f} ms, one again {:.1f} ms; serialised {:.2f} ms, {} "
            "KiB; loaded {:.1f} ms\n",
            what, first_ms, build_ms, serialize_ms, bytes.size() / 1024, load_ms);
        EXPECT_EQ(loaded->workspace_bytes(), built->workspace_bytes()) << what;
        const Tensors expected = results_of(problem, batch, built);
        expect_same_bits(results_of(problem, batch, loaded), expected, what);
        expect_same_bits(results_of(problem, batch, loaded), expected, what + ", again");
        expect_same_bits(results_of(problem, batch, load_cudnn_plan(loaded->serialized())), expected,
                         what + ", serialised once more");
      }
    }
  }
}

// The plans of a case are made by several threads, too.
TEST_F(GpuPlans, AreLoadedByManyThreadsAtOnce) {
  constexpr int kThreads = 8;
  const PlanProblem problem("ragged_causal_gaps", test::kGqa);
  const PlannedBatch batch = problem.batches(Pass::backward).front();
  const auto at_once = [](const auto& make) {
    std::vector<std::future<PlanOfTest>> futures;
    futures.reserve(kThreads);
    for (int i = 0; i < kThreads; ++i) futures.push_back(std::async(std::launch::async, make, i));
    std::vector<PlanOfTest> plans;
    plans.reserve(kThreads);
    for (auto& future : futures) plans.push_back(future.get());
    return plans;
  };
  std::vector<PlanOfTest> built;
  const double build_ms = milliseconds([&] {
    built = at_once([&batch](int i) -> PlanOfTest {
      CudnnGraph graph = batch.plan.graph;
      graph.scale *= 1.0 + 0.125 * i;  // makes each graph need a plan of its own
      return build_cudnn_plan(graph);
    });
  });
  std::vector<PlanStore::Bytes> bytes;
  bytes.reserve(kThreads);
  for (const PlanOfTest& plan : built) bytes.push_back(plan->serialized());
  std::vector<PlanOfTest> loaded;
  const double load_ms =
      milliseconds([&] { loaded = at_once([&bytes](int i) -> PlanOfTest { return load_cudnn_plan(bytes.at(i)); }); });
  fmt::print("[ figures  ] {} plans by as many threads: built {:.1f} ms, loaded {:.1f} ms\n", kThreads, build_ms,
             load_ms);
  for (int i = 0; i < kThreads; ++i) {
    expect_same_bits(results_of(problem, batch, loaded.at(i)), results_of(problem, batch, built.at(i)),
                     fmt::format("scale {}", i));
  }
}

// No plan of this shape has been executed in the process before the capture.
TEST_F(GpuPlans, CanBeCapturedAtOnceIfReadBack) {
  const TileShape shape{.name = "captured", .heads = 5, .kv_heads = 5, .head_dim_qk = 56, .head_dim_v = 40};
  const PlanProblem problem("ragged_band_gaps", shape);
  const auto stream = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const PlannedBatch batch = problem.batches(pass).front();
    const PlanOfTest loaded = load_cudnn_plan(build_cudnn_plan(batch.plan.graph)->serialized());
    stream.synchronize();
    at::cuda::CUDAGraph graph;
    Tensors captured;
    graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    EXPECT_NO_THROW(captured = results_of(problem, batch, loaded)) << name_of(pass);
    graph.capture_end();
    graph.replay();
    stream.synchronize();
    expect_same_bits(captured, results_of(problem, batch, batch.plan.plan), name_of(pass));
  }
}

TEST_F(GpuPlans, AreNotMadeOfOtherBytes) {
  const PlanStore::Bytes empty_object{'{', '}'};
  for (const PlanStore::Bytes& bytes : {PlanStore::Bytes{}, PlanStore::Bytes{1, 2, 3}, empty_object}) {
    EXPECT_THROW((void)load_cudnn_plan(bytes), std::runtime_error) << bytes.size();
  }
  PlanStore::Bytes cut =
      PlanProblem("causal_square", test::kGqa).batches(Pass::forward).front().plan.plan->serialized();
  cut.resize(cut.size() / 2);
  EXPECT_THROW((void)load_cudnn_plan(cut), std::runtime_error) << "half a plan";
}

// Counts the plans that cuDNN builds and loads.
struct CountedCudnn {
  PlanMaker maker() {
    return {.build =
                [this](const CudnnGraph& graph) {
                  ++built;
                  return build_cudnn_plan(graph);
                },
            .load =
                [this](const PlanStore::Bytes& bytes) {
                  ++loaded;
                  return load_cudnn_plan(bytes);
                },
            .environment = cudnn_plan_environment};
  }

  int built = 0;
  int loaded = 0;
};

class GpuStoredPlans : public GpuPlans {
 protected:
  // Gets the plan as a new process would, which has only the folder, and prints how long that takes.
  PlanOfTest get_anew(const CudnnGraph& graph, const char* what) {
    StoredPlans plans(cudnn_.maker(), folder_);
    PlanOfTest plan;
    fmt::print("[ figures  ] {}: {:.1f} ms\n", what, milliseconds([&] { plan = plans.get(graph); }));
    return plan;
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  CountedCudnn cudnn_;
};

TEST_F(GpuStoredPlans, AreLoadedByTheNextProcess) {
  const PlanProblem problem("ragged_causal_gaps", test::kGqa);
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const PlannedBatch batch = problem.batches(pass).front();
    cudnn_ = {};
    const Tensors expected = results_of(problem, batch, get_anew(batch.plan.graph, "built and stored"));
    expect_same_bits(results_of(problem, batch, get_anew(batch.plan.graph, "loaded")), expected, name_of(pass));
    EXPECT_EQ(cudnn_.built, 1) << name_of(pass);
    EXPECT_EQ(cudnn_.loaded, 1) << name_of(pass);
  }
}

TEST_F(GpuStoredPlans, AreBuiltAnewWhereTheFileIsDamaged) {
  const PlanProblem problem("causal_square", test::kGqa);
  const PlannedBatch batch = problem.batches(Pass::forward).front();
  const Tensors expected = results_of(problem, batch, get_anew(batch.plan.graph, "built and stored"));
  const fs::path file = fs::directory_iterator(folder_)->path();
  fs::resize_file(file, fs::file_size(file) / 2);
  expect_same_bits(results_of(problem, batch, get_anew(batch.plan.graph, "damaged")), expected, "built anew");
  expect_same_bits(results_of(problem, batch, get_anew(batch.plan.graph, "loaded")), expected, "loaded");
  EXPECT_EQ(cudnn_.built, 2);
  EXPECT_EQ(cudnn_.loaded, 1);
}

}  // namespace
}  // namespace cp_pool
