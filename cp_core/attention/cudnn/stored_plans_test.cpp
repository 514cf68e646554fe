#include <set>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"
#include "cp_core/attention/backend_unsupported.h"
#include "cp_core/attention/cudnn/plan_store.h"

namespace cp_pool {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

struct FakePlan final : CudnnPlan {
  explicit FakePlan(std::int64_t m) : m(m) {}
  [[nodiscard]] std::int64_t workspace_bytes() const override { return m; }
  void execute(Pointers& /*pointers*/, void* /*workspace*/) const override {}
  [[nodiscard]] std::vector<std::uint8_t> serialized() const override {
    if (m == kNotSerializable) throw std::runtime_error("no plan of this kind");
    return {static_cast<std::uint8_t>(m)};
  }

  static constexpr std::int64_t kNotSerializable = 255;
  std::int64_t m;
};

CudnnGraph graph_of(std::int64_t m) {
  CudnnGraph graph;
  graph.m = m;
  return graph;
}

// Makes plans whose workspace_bytes() is the graph's m, and counts them.
struct FakeCudnn {
  PlanMaker maker() {
    return {.build = [this](const CudnnGraph& graph) -> std::unique_ptr<const CudnnPlan> {
              ++built;
              if (graph.m == 0) throw BackendUnsupported("cuDNN refuses it");
              return std::make_unique<FakePlan>(graph.m);
            },
            .load = [this](const PlanStore::Bytes& bytes) -> std::unique_ptr<const CudnnPlan> {
              if (load_fails) throw std::runtime_error("cuDNN does not take it back");
              ++loaded;
              return std::make_unique<FakePlan>(bytes.at(0));
            },
            .environment = [this] { return environment; }};
  }

  int built = 0;
  int loaded = 0;
  bool load_fails = false;
  std::string environment = "cuDNN 9";
};

class StoredPlansTest : public testing::Test {
 protected:
  // Gets the plan as a new process would, which has only the folder, and returns its m.
  std::int64_t get_anew(std::int64_t m) {
    StoredPlans plans(cudnn_.maker(), folder_);
    return plans.get(graph_of(m))->workspace_bytes();
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  FakeCudnn cudnn_;
};

TEST_F(StoredPlansTest, LoadsWhatAnEarlierProcessBuilt) {
  for (const std::int64_t m : {5, 6, 5, 6, 5}) EXPECT_EQ(get_anew(m), m);
  EXPECT_EQ(cudnn_.built, 2);
  EXPECT_EQ(cudnn_.loaded, 3);
}

TEST_F(StoredPlansTest, WritesAllBeforeItEnds) {
  {
    StoredPlans plans(cudnn_.maker(), folder_);
    for (std::int64_t m = 1; m <= 100; ++m) (void)plans.get(graph_of(m));
  }
  for (std::int64_t m = 1; m <= 100; ++m) EXPECT_EQ(get_anew(m), m);
  EXPECT_EQ(cudnn_.built, 100);
}

TEST_F(StoredPlansTest, BuildsAnewInAnotherEnvironment) {
  (void)get_anew(5);
  cudnn_.environment = "cuDNN 10";
  EXPECT_EQ(get_anew(5), 5);
  EXPECT_EQ(cudnn_.built, 2);
  cudnn_.environment = "cuDNN 9";
  EXPECT_EQ(get_anew(5), 5);
  EXPECT_EQ(cudnn_.built, 2) << "both are kept";
}

TEST_F(StoredPlansTest, ReplacesADamagedFile) {
  (void)get_anew(5);
  const fs::path file = fs::directory_iterator(folder_)->path();
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_EQ(get_anew(5), 5);
  EXPECT_EQ(cudnn_.built, 2);
  EXPECT_EQ(get_anew(5), 5);
  EXPECT_EQ(cudnn_.built, 2);
}

TEST_F(StoredPlansTest, ReplacesAPlanThatCudnnDoesNotTakeBack) {
  (void)get_anew(5);
  cudnn_.load_fails = true;
  testing::internal::CaptureStderr();
  EXPECT_EQ(get_anew(5), 5);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("cuDNN does not take it back"));
  cudnn_.load_fails = false;
  EXPECT_EQ(get_anew(5), 5);
  EXPECT_EQ(cudnn_.built, 2);
  EXPECT_EQ(cudnn_.loaded, 1);
}

TEST_F(StoredPlansTest, GivesAPlanThatCannotBeStoredAndSaysSoOnce) {
  StoredPlans plans(cudnn_.maker(), folder_);
  testing::internal::CaptureStderr();
  EXPECT_NE(plans.get(graph_of(FakePlan::kNotSerializable)), nullptr);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("no plan of this kind"));
  testing::internal::CaptureStderr();
  EXPECT_NE(plans.get(graph_of(FakePlan::kNotSerializable)), nullptr);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
}

TEST_F(StoredPlansTest, PassesARefusalOnAndStoresNone) {
  EXPECT_THROW(get_anew(0), BackendUnsupported);
  EXPECT_THROW(get_anew(0), BackendUnsupported);
  EXPECT_EQ(cudnn_.built, 2);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(StoredPlansTest, KeepsNothingWithoutAFolder) {
  StoredPlans plans(cudnn_.maker(), std::nullopt);
  EXPECT_EQ(plans.get(graph_of(5))->workspace_bytes(), 5);
  EXPECT_EQ(plans.get(graph_of(5))->workspace_bytes(), 5);
  EXPECT_EQ(cudnn_.built, 2);
}

// A default graph, and for each member a graph that differs from it in that member only.
std::vector<CudnnGraph> different_graphs() {
  std::vector<CudnnGraph> graphs(1);
  const auto add = [&graphs](const auto& change) { change(graphs.emplace_back()); };
  add([](CudnnGraph& g) { g.backward = true; });
  add([](CudnnGraph& g) { g.deterministic = true; });
  add([](CudnnGraph& g) { g.dtype = c10::ScalarType::Half; });
  add([](CudnnGraph& g) { g.scale = 1.0 + 1e-15; });
  add([](CudnnGraph& g) { g.mask.bottom_right = true; });
  add([](CudnnGraph& g) { g.mask.left_bound = 0; });
  add([](CudnnGraph& g) { g.mask.right_bound = 0; });
  add([](CudnnGraph& g) { g.mask.padding = true; });
  add([](CudnnGraph& g) { g.ragged = true; });
  add([](CudnnGraph& g) { g.dbias = true; });
  for (const auto member :
       {&CudnnGraph::batch, &CudnnGraph::heads, &CudnnGraph::kv_heads, &CudnnGraph::m, &CudnnGraph::n,
        &CudnnGraph::head_dim_qk, &CudnnGraph::head_dim_v, &CudnnGraph::row_heads, &CudnnGraph::row_kv_heads,
        &CudnnGraph::q_rows, &CudnnGraph::k_rows, &CudnnGraph::q_stride, &CudnnGraph::k_stride, &CudnnGraph::v_stride,
        &CudnnGraph::out_stride, &CudnnGraph::bias_heads}) {
    add([member](CudnnGraph& g) { g.*member = 1; });
  }
  return graphs;
}

TEST(KeyOfAGraph, DiffersWhereverTheGraphDoes) {
  const std::vector<CudnnGraph> graphs = different_graphs();
  std::set<std::string> keys;
  for (const CudnnGraph& graph : graphs) keys.insert(key_of(graph));
  EXPECT_EQ(keys.size(), graphs.size());
  EXPECT_EQ(keys.size(), 27U);
  EXPECT_EQ(key_of(graphs.front()), key_of(CudnnGraph()));
}

}  // namespace
}  // namespace cp_pool
