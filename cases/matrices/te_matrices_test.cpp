// Compares te-flash and te-fused with a second, independent table of Transformer Engine's models.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_json.h"
#include "cases/filter.h"
#include "cases/matrix.h"

namespace cp_pool {
namespace {

using testing::SizeIs;

struct Model {
  std::string_view name;
  int heads, kv_heads, head_dim_qk, head_dim_v;
  bool causal;
  int left, right;
  bool essential;
  std::string_view bias = "none";
  SoftmaxType softmax = SoftmaxType::vanilla;
  bool max_logit = false;
  int seqlen = 4096;
};

constexpr bool kCausal = true;
constexpr bool kNoMask = false;
constexpr bool kEssential = true;

const std::vector<Model> kFlash{
    {"cp_1_0", 12, 12, 128, 128, kCausal, -1, -1, false},
    {"cp_1_1", 12, 12, 128, 128, kNoMask, -1, -1, false},
    {"cp_1_2", 12, 12, 128, 128, kCausal, 512, 0, false},
    {"cp_1_3", 12, 12, 128, 128, kNoMask, 512, 512, false},
    {"cp_2_0", 32, 4, 128, 128, kCausal, -1, -1, kEssential},
    {"cp_2_1", 12, 2, 128, 128, kNoMask, -1, -1, false},
    {"cp_2_2", 32, 32, 128, 128, kCausal, 128, 0, kEssential},
    {"cp_2_3", 12, 2, 128, 128, kNoMask, 512, 512, false},
    {"cp_3_0", 128, 128, 192, 128, kCausal, -1, -1, kEssential},
    {"cp_3_1", 12, 12, 192, 128, kNoMask, -1, -1, false},
    {"cp_3_2", 12, 12, 192, 128, kCausal, 512, 0, false},
    {"cp_3_3", 12, 12, 192, 128, kNoMask, 512, 512, kEssential},
};

constexpr auto kVanilla = SoftmaxType::vanilla;
constexpr auto kOffByOne = SoftmaxType::off_by_one;
constexpr auto kLearnable = SoftmaxType::learnable;

const std::vector<Model> kFused{
    {"cp_1_0", 12, 12, 128, 128, kCausal, -1, -1, kEssential, "none", kVanilla, true},
    {"cp_1_1", 12, 12, 128, 128, kNoMask, -1, -1, false, "none", kVanilla, true},
    {"cp_1_2", 12, 12, 128, 128, kCausal, -1, -1, false, "1hss"},
    {"cp_1_3", 12, 12, 128, 128, kNoMask, -1, -1, false, "1hss"},
    {"cp_1_4", 12, 12, 128, 128, kNoMask, -1, -1, false, "bhss"},
    {"cp_1_5", 12, 12, 128, 128, kCausal, 512, 512, false},
    {"cp_1_6", 12, 12, 128, 128, kNoMask, -1, -1, false},
    {"cp_2_0", 32, 4, 128, 128, kCausal, -1, -1, kEssential},
    {"cp_2_1", 32, 32, 128, 128, kCausal, 128, 0, kEssential},
    {"cp_2_2", 12, 2, 128, 128, kCausal, -1, -1, kEssential, "1hss"},
    {"cp_2_3", 12, 2, 128, 128, kCausal, -1, -1, false, "11ss"},
    {"cp_2_4", 12, 2, 128, 128, kCausal, -1, -1, kEssential, "111s", kVanilla, true},
    {"cp_2_5", 12, 2, 128, 128, kNoMask, -1, -1, false, "1hss"},
    {"cp_2_6", 12, 2, 128, 128, kCausal, 512, 512, false},
    {"cp_3_0", 12, 12, 128, 64, kCausal, -1, -1, false},
    {"cp_3_1", 128, 128, 192, 128, kCausal, -1, -1, kEssential},
    {"cp_3_2", 12, 12, 128, 64, kCausal, -1, -1, kEssential, "1hss"},
    {"cp_3_3", 12, 12, 128, 64, kNoMask, -1, -1, false, "1hss"},
    {"cp_3_4", 12, 12, 128, 64, kNoMask, -1, -1, kEssential, "b1ss"},
    {"cp_4_0", 64, 8, 64, 64, kCausal, -1, -1, false},
    {"cp_4_1", 64, 8, 64, 64, kCausal, -1, -1, false, "none", kOffByOne},
    {"cp_4_2", 64, 8, 64, 64, kCausal, -1, -1, kEssential, "none", kLearnable},
    {"cp_4_3", 64, 64, 64, 64, kCausal, 128, 0, kEssential, "none", kLearnable},
    {"cp_5_0", 16, 16, 256, 256, kCausal, -1, -1, kEssential, "none", kVanilla, false, 1024},
    {"cp_5_1", 16, 16, 256, 256, kCausal, 128, 0, kEssential, "none", kVanilla, false, 1024},
};

std::optional<BiasShape> bias_shape(std::string_view name) {
  if (name == "1hss") return BiasShape::shape_1hss;
  if (name == "bhss") return BiasShape::shape_bhss;
  if (name == "b1ss") return BiasShape::shape_b1ss;
  if (name == "11ss") return BiasShape::shape_11ss;
  if (name == "111s") return BiasShape::shape_111s;
  return std::nullopt;
}

void shrink(Case& c) {
  c.seqlen_q = c.seqlen_kv = c.seqlen_q / 32;
  for (std::int64_t& side : c.window) {
    if (side == 512) side = 16;
    if (side == 128) side = 4;
  }
  const std::map<std::pair<std::int64_t, std::int64_t>, std::pair<int, int>> heads{
      {{12, 12}, {4, 4}}, {{12, 2}, {4, 2}},  {{32, 4}, {8, 2}},    {{32, 32}, {8, 8}},
      {{64, 8}, {8, 2}},  {{64, 64}, {8, 8}}, {{128, 128}, {8, 8}}, {{16, 16}, {4, 4}}};
  std::tie(c.heads, c.kv_heads) = heads.at({c.heads, c.kv_heads});
}

struct Expected {
  Case c;
  bool essential;
  bool optional;  // then also tagged cp4: at size small only, in addition to what Transformer Engine tests
};

using Expectations = std::map<std::string, Expected>;

Case base_case(const Model& model) {
  Case c;
  c.model = model.name;
  c.batch = 2;
  c.seqlen_q = c.seqlen_kv = model.seqlen;
  c.heads = model.heads;
  c.kv_heads = model.kv_heads;
  c.head_dim_qk = model.head_dim_qk;
  c.head_dim_v = model.head_dim_v;
  c.causal = model.causal;
  c.window = {model.left, model.right};
  c.softmax = model.softmax;
  c.bias = bias_shape(model.bias);
  c.max_logit = model.max_logit;
  c.training = c.bias != BiasShape::shape_111s;
  c.seed = 1234;
  return c;
}

// pads: the values of pad_between_seqs that thd cases have.
Expectations expectations(std::string_view suite, Backend backend, const std::vector<Model>& models,
                          const std::vector<bool>& pads, bool small) {
  const std::vector<std::pair<DType, std::string>> dtypes{
      {DType::bf16, "bf16"}, {DType::fp16, "fp16"}, {DType::fp32, "fp32"}};
  const std::vector<std::pair<Layout, std::string>> layouts{
      {Layout::bshd, "bshd"}, {Layout::sbhd, "sbhd"}, {Layout::thd, "thd"}};
  std::vector<std::pair<CommType, std::string>> comms{{CommType::p2p, "p2p/cp2"},
                                                      {CommType::all_gather, "all_gather/cp2"},
                                                      {CommType::a2a, "a2a/cp2"},
                                                      {CommType::a2a_p2p, "a2a+p2p/cp4"}};
  if (small) comms.insert(comms.end(), {{CommType::p2p, "p2p/cp4"}, {CommType::all_gather, "all_gather/cp4"}});
  Expectations expected;
  for (const Model& model : models) {
    for (const auto& [dtype, dtype_name] : dtypes) {
      if (dtype == DType::fp32 && !small) continue;
      for (const auto& [layout, layout_name] : layouts) {
        for (const bool pad : layout == Layout::thd ? pads : std::vector{false}) {
          for (const auto& [comm, comm_name] : comms) {
            Case c = base_case(model);
            if (small) shrink(c);
            c.suite = suite;
            c.backend = backend;
            c.dtype = dtype;
            c.layout = layout;
            c.pad_between_seqs = pad;
            c.comm = comm;
            c.cp_size = comm_name.ends_with("cp4") ? 4 : 2;
            const bool optional = c.cp_size == 4 && comm != CommType::a2a_p2p;
            const std::string id = fmt::format("{}/{}/{}/{}/{}{}", suite, model.name, comm_name, layout_name,
                                               dtype_name, pad ? "/pad" : "");
            const bool essential = !optional && model.essential && dtype == DType::bf16 && layout != Layout::bshd;
            expected.emplace(id, Expected{.c = c, .essential = essential, .optional = optional});
          }
        }
      }
    }
  }
  return expected;
}

std::vector<MatrixCase> load(const std::string& name, std::string_view size) {
  return expand(std::vector{load_matrix(CP_POOL_MATRICES "/" + name + ".json")}, size);
}

void expect_equal(const std::vector<MatrixCase>& cases, const Expectations& expected) {
  EXPECT_EQ(cases.size(), expected.size());
  for (const MatrixCase& entry : cases) {
    const auto found = expected.find(entry.id);
    ASSERT_NE(found, expected.end()) << entry.id;
    EXPECT_EQ(to_json(entry.c), to_json(found->second.c)) << entry.id;
    EXPECT_EQ(std::ranges::count(entry.tags, "essential") == 1, found->second.essential) << entry.id;
    EXPECT_EQ(std::ranges::count(entry.tags, "cp4") == 1, found->second.optional) << entry.id;
    EXPECT_EQ(entry.optional, found->second.optional) << entry.id;
  }
}

std::size_t count(const std::vector<MatrixCase>& cases, std::string_view expression) {
  const Filter filter = Filter::parse(expression);
  return static_cast<std::size_t>(std::ranges::count_if(cases, [&filter](const MatrixCase& entry) {
    return filter.matches({.c = entry.c, .tags = entry.tags, .id = entry.id, .size = entry.size});
  }));
}

TEST(TeFlash, IsTransformerEnginesMatrixAtFullSize) {
  expect_equal(load("te-flash", "full"), expectations("te-flash", Backend::flash, kFlash, {false, true}, false));
}

TEST(TeFlash, IsTransformerEnginesMatrixAtSmallSize) {
  expect_equal(load("te-flash", "small"), expectations("te-flash", Backend::flash, kFlash, {false, true}, true));
}

TEST(TeFused, IsTransformerEnginesMatrixAtFullSize) {
  expect_equal(load("te-fused", "full"), expectations("te-fused", Backend::cudnn, kFused, {true}, false));
}

TEST(TeFused, IsTransformerEnginesMatrixAtSmallSize) {
  expect_equal(load("te-fused", "small"), expectations("te-fused", Backend::cudnn, kFused, {true}, true));
}

TEST(TeFlash, HasItsCounts) {
  const auto full = load("te-flash", "full");
  EXPECT_THAT(full, SizeIs(384));
  const auto small = load("te-flash", "small");
  EXPECT_EQ(count(small, "!tag=cp4"), 576U);
  EXPECT_EQ(count(small, "tag=cp4 & comm=p2p"), 144U);
  EXPECT_EQ(count(small, "tag=cp4 & comm=all_gather"), 144U);
  EXPECT_THAT(small, SizeIs(576 + 288));
  EXPECT_EQ(count(full, "tag=essential"), 48U);  // 4 models, sbhd and thd with and without padding, 4 comm types
  for (const char* comm : {"p2p", "all_gather", "a2a", "a2a+p2p"}) {
    EXPECT_EQ(count(full, std::string("comm=") + comm), 96U) << comm;
  }
  EXPECT_EQ(count(full, "layout=bshd"), 96U);
  EXPECT_EQ(count(full, "layout=sbhd"), 96U);
  EXPECT_EQ(count(full, "layout=thd"), 192U);
  EXPECT_EQ(count(full, "layout=thd & pad_between_seqs=true"), 96U);
  EXPECT_EQ(count(full, "world_size=4"), 96U);
  for (const Model& model : kFlash) {
    EXPECT_EQ(count(full, "model=" + std::string(model.name)), 32U) << model.name;
  }
}

TEST(TeFused, HasItsCounts) {
  const auto full = load("te-fused", "full");
  EXPECT_THAT(full, SizeIs(600));
  const auto small = load("te-fused", "small");
  EXPECT_EQ(count(small, "!tag=cp4"), 900U);
  EXPECT_EQ(count(small, "tag=cp4 & comm=p2p"), 225U);
  EXPECT_EQ(count(small, "tag=cp4 & comm=all_gather"), 225U);
  EXPECT_THAT(small, SizeIs(900 + 450));
  EXPECT_EQ(count(full, "tag=essential"), 96U);  // 12 models, sbhd and thd, 4 comm types
  for (const char* comm : {"p2p", "all_gather", "a2a", "a2a+p2p"}) {
    EXPECT_EQ(count(full, std::string("comm=") + comm), 150U) << comm;
  }
  for (const char* layout : {"bshd", "sbhd", "thd"}) {
    EXPECT_EQ(count(full, std::string("layout=") + layout), 200U) << layout;
  }
  EXPECT_EQ(count(full, "layout=thd & pad_between_seqs=false"), 0U);
  EXPECT_EQ(count(full, "training=false"), 24U);
  EXPECT_EQ(count(full, "!bias=none"), 240U);
  EXPECT_EQ(count(full, "softmax!=vanilla"), 72U);
  EXPECT_EQ(count(full, "max_logit=true"), 72U);
  for (const Model& model : kFused) {
    EXPECT_EQ(count(full, "model=" + std::string(model.name)), 24U) << model.name;
  }
}

TEST(TeMatrices, ThatOfFp8HasModelsOfTeFusedInSeveralForms) {
  std::map<std::string, std::set<std::string>> forms;
  for (const MatrixCase& entry : load("te-fp8", "full")) {
    const Case& c = entry.c;
    const auto model = std::ranges::find(kFused, c.model, &Model::name);
    ASSERT_NE(model, kFused.end()) << entry.id;
    const Case of_fused = base_case(*model);
    EXPECT_EQ(std::tie(c.heads, c.kv_heads, c.head_dim_qk, c.head_dim_v, c.seqlen_q, c.seqlen_kv, c.causal, c.window),
              std::tie(of_fused.heads, of_fused.kv_heads, of_fused.head_dim_qk, of_fused.head_dim_v, of_fused.seqlen_q,
                       of_fused.seqlen_kv, of_fused.causal, of_fused.window))
        << entry.id;
    EXPECT_EQ(std::tie(c.softmax, c.bias), std::tie(of_fused.softmax, of_fused.bias)) << entry.id;
    forms[c.model].insert(field_text(*find_case_field("fp8"), c));
  }
  EXPECT_THAT(forms, testing::SizeIs(5));
  for (const auto& [model, found] : forms) {
    EXPECT_THAT(found,
                testing::ElementsAre("current", "current,forward", "current,output", "delayed", "delayed,output"));
  }
}

TEST(TeMatrices, AFailureAtSmallSizeNamesTheSameCase) {
  for (const char* name : {"te-flash", "te-fused"}) {
    std::set<std::string> full;
    std::set<std::string> small;
    for (const MatrixCase& entry : load(name, "full")) full.insert(entry.id);
    for (const MatrixCase& entry : load(name, "small")) {
      if (entry.c.dtype != DType::fp32 && !entry.optional) small.insert(entry.id);
    }
    EXPECT_EQ(full, small) << name;
  }
}

TEST(TeMatrices, CasesOfOneProblemStandTogether) {
  for (const char* name : {"te-flash", "te-fused"}) {
    std::set<std::string> seen;
    std::string last;
    for (const MatrixCase& entry : load(name, "full")) {
      const Case& c = entry.c;
      std::string key =
          fmt::format("{}/{}/{}/{}", c.model, to_string(c.dtype), to_string(c.layout), c.pad_between_seqs);
      if (key != last) {
        EXPECT_TRUE(seen.insert(key).second) << key;
      }
      last = std::move(key);
    }
  }
}

}  // namespace
}  // namespace cp_pool
