#include "cases/case_json.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cases/json_text.h"
#include "cases/testing/error_text.h"

namespace cp_pool {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// The required sizes alone.
constexpr std::string_view kSizes =
    R"("seqlen_q":64,"seqlen_kv":64,"heads":4,"kv_heads":2,"head_dim_qk":16,"head_dim_v":8)";

std::string with_sizes(std::string_view more) {
  return "{" + std::string(kSizes) + (more.empty() ? "" : ",") + std::string(more) + "}";
}

std::string error_of(const std::string& text) {
  return test::error_text([&] { parse_case_text(text, "a.json"); });
}

TEST(CaseJson, ParsesEveryKey) {
  const Case c = parse_case_text(R"({"suite":"te-fused","model":"cp_2_2","backend":"cudnn","comm":"a2a+p2p","cp_size":4,
    "layout":"thd","dtype":"fp16","batch":3,"seqlen_q":96,"seqlen_kv":128,"heads":12,"kv_heads":2,"head_dim_qk":192,
    "head_dim_v":128,"causal":true,"window":[7,-1],"chunk":5,"softmax":"off_by_one","bias":"b1ss","max_logit":true,
    "seqlens":[0,8,96],"seqlens_kv":[1,2,128],"pad_between_seqs":true,"training":false,"deterministic":true,
    "input_scale":0.125,"score_offset":-65.5,"strided":true,"replicated":40,"all_queries":true,"group":3,
    "group_ranks":[[0,1,2,3],[4,6,8,10],[5,7,9,11]],"seed":18446744073709551615})",
                                 "a.json");
  Case expected;
  expected.suite = "te-fused";
  expected.model = "cp_2_2";
  expected.backend = Backend::cudnn;
  expected.comm = CommType::a2a_p2p;
  expected.cp_size = 4;
  expected.layout = Layout::thd;
  expected.dtype = DType::fp16;
  expected.batch = 3;
  expected.seqlen_q = 96;
  expected.seqlen_kv = 128;
  expected.heads = 12;
  expected.kv_heads = 2;
  expected.head_dim_qk = 192;
  expected.head_dim_v = 128;
  expected.causal = true;
  expected.window = {7, -1};
  expected.chunk = 5;
  expected.softmax = SoftmaxType::off_by_one;
  expected.bias = BiasShape::shape_b1ss;
  expected.max_logit = true;
  expected.seqlens = {0, 8, 96};
  expected.seqlens_kv = {1, 2, 128};
  expected.pad_between_seqs = true;
  expected.training = false;
  expected.deterministic = true;
  expected.input_scale = 0.125;
  expected.score_offset = -65.5;
  expected.strided = true;
  expected.replicated = 40;
  expected.all_queries = true;
  expected.group = 3;
  expected.group_ranks = {{0, 1, 2, 3}, {4, 6, 8, 10}, {5, 7, 9, 11}};
  expected.seed = 18446744073709551615U;
  EXPECT_EQ(c, expected);
  EXPECT_EQ(parse_case(to_json(c), "again"), c);
}

TEST(CaseJson, ParsesTheLengthsOfGroups) {
  const Case c = parse_case_text(
      with_sizes(R"("layout":"thd","seqlens":[8,64],"group":2,"group_ranks":[[0,2],[1]],"group_lengths":[[8,64],[2]])"),
      "a.json");
  EXPECT_EQ(c.group_lengths, (std::vector<std::vector<std::int64_t>>{{8, 64}, {2}}));
  EXPECT_EQ(parse_case(to_json(c), "again"), c);
}

TEST(CaseJson, EveryKeyButTheSizesHasADefault) {
  Case expected;
  expected.seqlen_q = expected.seqlen_kv = 64;
  expected.heads = 4;
  expected.kv_heads = 2;
  expected.head_dim_qk = 16;
  expected.head_dim_v = 8;
  EXPECT_EQ(parse_case_text(with_sizes(""), "a.json"), expected);
  EXPECT_EQ(parse_case(to_json(expected), "again"), expected);
}

// What these keys exclude is in the test before.
TEST(CaseJson, ParsesMaskAndSoftcap) {
  const char* const members = R"("mask":[[0,8,0,64,"full"],[8,64,8,64,"bicausal"]],"softcap":2.5)";
  const Case c = parse_case_text(with_sizes(members), "a.json");
  EXPECT_EQ(c.mask, (std::vector<MaskSlice>{
                        {.queries = {0, 8}, .keys = {0, 64}, .type = SliceType::full},
                        {.queries = {8, 64}, .keys = {8, 64}, .type = SliceType::bicausal},
                    }));
  EXPECT_EQ(c.softcap, 2.5);
  EXPECT_THAT(to_json(c).dump(), HasSubstr(members));
  EXPECT_EQ(field_text(*find_case_field("mask"), c), "0,8,0,64,full+8,64,8,64,bicausal");
  EXPECT_EQ(field_text(*find_case_field("mask"), Case{}), "none");
}

TEST(CaseJson, ParsesFp8) {
  const CaseField& field = *find_case_field("fp8");
  const Case c =
      parse_case_text(with_sizes(R"("fp8":{"scaling":"delayed","backward":false,"output":"fp8"})"), "a.json");
  EXPECT_EQ(c.fp8, (Fp8{.scaling = Fp8Scaling::delayed, .backward = false, .output = Fp8Output::fp8}));
  EXPECT_THAT(to_json(c).dump(),
              HasSubstr(R"("fp8":{"scaling":"delayed","forward":true,"backward":false,"output":"fp8"})"));
  EXPECT_EQ(field_text(field, c), "delayed,forward,output");
  EXPECT_EQ(field_text(field, parse_case_text(with_sizes(R"("fp8":{})"), "a.json")), "current");
  EXPECT_EQ(field_text(field, Case{}), "none");
  EXPECT_EQ(error_of(with_sizes(R"("fp8":{"scalin":"current"})")),
            "a.json: $.fp8.scalin: unknown key \"scalin\"; did you mean 'scaling'? (known: scaling, forward, backward, "
            "output)");
  EXPECT_EQ(error_of(with_sizes(R"("fp8":{"output":"fp16"})")), "a.json: $.fp8.output: \"fp16\" is not bf16 or fp8");
}

TEST(CaseJson, WritesAllKeysInProtocolOrder) {
  const Case c = parse_case_text(with_sizes(""), "a.json");
  EXPECT_EQ(
      to_json(c).dump(),
      R"({"suite":"adhoc","model":"case","backend":"math","comm":"p2p","cp_size":2,"inner":2,"layout":"bshd","dtype":"bf16",)"
      R"("batch":2,"seqlen_q":64,"seqlen_kv":64,"heads":4,"kv_heads":2,"head_dim_qk":16,"head_dim_v":8,)"
      R"("causal":false,"window":[-1,-1],"chunk":0,"mask":null,"softcap":0,"softmax":"vanilla","bias":null,"max_logit":false,)"
      R"("seqlens":null,"seqlens_kv":null,"pad_between_seqs":false,"training":true,"deterministic":false,)"
      R"("fp8":null,"input_scale":1,"score_offset":0,"strided":false,"replicated":0,"all_queries":false,"group":1,)"
      R"("group_ranks":null,"group_lengths":null,"seed":1234})");
}

TEST(CaseJson, AcceptsJsonWithSortedKeys) {
  const Case c = parse_case_text(with_sizes(R"("causal":true,"model":"m")"), "a.json");
  const nlohmann::json sorted = nlohmann::json::parse(to_json(c).dump());
  EXPECT_EQ(parse_case(sorted, "protocol"), c);
}

TEST(CaseJson, EverySizeIsRequired) {
  for (const char* size : {"seqlen_q", "seqlen_kv", "heads", "kv_heads", "head_dim_qk", "head_dim_v"}) {
    Json json = parse_json_text(with_sizes(""), "a.json");
    json.erase(size);
    EXPECT_EQ(error_of(json.dump()), "a.json: $." + std::string(size) + ": this size is missing and has no default");
  }
}

TEST(CaseJson, AllMissingSizesAreNamedAtOnce) {
  EXPECT_EQ(error_of(R"({"seqlen_q": 64, "heads": 4, "kv_heads": 4, "head_dim_qk": 16})"),
            "a.json: $.seqlen_kv: this size is missing and has no default; also missing: head_dim_v");
  EXPECT_EQ(error_of("{}"),
            "a.json: $.seqlen_q: this size is missing and has no default; also missing: seqlen_kv, heads, kv_heads, "
            "head_dim_qk, head_dim_v");
}

TEST(CaseJson, UnknownKeyIsAnErrorWithASuggestion) {
  EXPECT_THAT(error_of(with_sizes(R"("casual":true)")),
              AllOf(StartsWith("a.json: $.casual: unknown key \"casual\"; did you mean 'causal'?"),
                    HasSubstr("known: suite, model")));
  EXPECT_THAT(error_of(with_sizes(R"("zzzzzzzz":true)")), Not(HasSubstr("did you mean")));
  EXPECT_THAT(error_of(with_sizes(R"("a b\n":1)")), StartsWith(R"(a.json: $["a b\n"]: unknown key "a b\n")"));
}

TEST(CaseJson, WrongTypesNameTheValue) {
  const auto error = [](std::string_view member) { return error_of(with_sizes(member)); };
  EXPECT_EQ(error(R"("batch":"2")"), R"(a.json: $.batch: "2" is not an integer)");
  EXPECT_EQ(error(R"("batch":2.0)"), "a.json: $.batch: 2.0 is not an integer");
  EXPECT_EQ(error(R"("batch":null)"), "a.json: $.batch: null is not an integer");
  EXPECT_EQ(error(R"("batch":true)"), "a.json: $.batch: true is not an integer");
  EXPECT_EQ(error(R"("batch":9223372036854775808)"),
            "a.json: $.batch: 9223372036854775808 does not fit: it is at most 9223372036854775807");
  EXPECT_EQ(error(R"("cp_size":4294967298)"), "a.json: $.cp_size: 4294967298 does not fit into 32 bits");
  EXPECT_EQ(error(R"("cp_size":-4294967294)"), "a.json: $.cp_size: -4294967294 does not fit into 32 bits");
  EXPECT_EQ(error(R"("seed":-1)"), "a.json: $.seed: -1 is negative");
  EXPECT_EQ(error(R"("seed":18446744073709551616)"), "a.json: $.seed: 18446744073709551616 does not fit into 64 bits");
  EXPECT_EQ(error(R"("input_scale":"10")"), R"(a.json: $.input_scale: "10" is not a number)");
  EXPECT_EQ(error(R"("causal":1)"), "a.json: $.causal: 1 is not true or false");
  EXPECT_EQ(error(R"("model":7)"), "a.json: $.model: 7 is not a string");
  EXPECT_EQ(error(R"("comm":"ring")"), R"(a.json: $.comm: "ring" is not )" + list_names<CommType>());
  EXPECT_EQ(error(R"("bias":"hss")"), R"(a.json: $.bias: "hss" is not 1hss, bhss, b1ss, 11ss or 111s)");
  EXPECT_EQ(error(R"("window":[1])"), "a.json: $.window: an array of 1 is not an array of 2: left, right");
  EXPECT_EQ(error(R"("window":[1,2.5])"), "a.json: $.window[1]: 2.5 is not an integer");
  EXPECT_EQ(error(R"("window":{})"), "a.json: $.window: an object with 0 keys is not an array");
  EXPECT_EQ(
      error(R"("mask":[[0,1]])"),
      "a.json: $.mask[0]: an array of 2 is not a slice: first query, end of queries, first key, end of keys, type");
  EXPECT_EQ(error(R"("mask":[[0,1,0,1,"band"]])"),
            R"(a.json: $.mask[0][4]: "band" is not full, causal, inverse_causal or bicausal)");
  EXPECT_EQ(error(R"("mask":[])"), "a.json: $.mask: a mask has at least one slice; null stands for no mask");
  EXPECT_EQ(error(R"("seqlens":[1,"2"])"), R"(a.json: $.seqlens[1]: "2" is not an integer)");
  EXPECT_EQ(error_of("[1]"), "a.json: $: an array of 1 is not an object");
}

TEST(CaseJson, ImpossibleCombinationNamesTheField) {
  EXPECT_EQ(error_of(with_sizes(R"("comm":"a2a+p2p")")),
            "a.json: $.cp_size: 2 does not fit comm a2a+p2p, which needs two or more groups of `inner` ranks, in a "
            "ring");
}

TEST(CaseJson, FieldsAreFoundByName) {
  ASSERT_NE(find_case_field("kv_heads"), nullptr);
  EXPECT_EQ(find_case_field("kv_heads")->name, "kv_heads");
  EXPECT_EQ(find_case_field("kvheads"), nullptr);
  EXPECT_EQ(case_field_names().size(), case_fields().size());
}

// Every field that a worker of version 1 does not know is listed here.
TEST(CaseJson, FieldsSayWhetherVersion1HasThem) {
  std::vector<std::string> newer;
  for (const CaseField& field : case_fields()) {
    if (!field.in_version_1) newer.emplace_back(field.name);
  }
  EXPECT_THAT(newer, testing::ElementsAre("inner", "mask", "softcap", "fp8", "input_scale", "score_offset", "strided",
                                          "replicated", "all_queries", "group", "group_ranks", "group_lengths"));
}

TEST(CaseJson, FieldsKnowTheirDefault) {
  Case c;
  for (const CaseField& field : case_fields()) EXPECT_TRUE(is_default(field, c)) << field.name;
  c.input_scale = 10;
  c.bias = BiasShape::shape_1hss;
  EXPECT_FALSE(is_default(*find_case_field("input_scale"), c));
  EXPECT_FALSE(is_default(*find_case_field("bias"), c));
}

TEST(CaseJson, FieldsHaveATextForIdsAndFilters) {
  Case c;
  const auto text = [&c](std::string_view name) { return field_text(*find_case_field(name), c); };
  c.comm = CommType::a2a_p2p;
  c.window = {512, 0};
  EXPECT_EQ(text("comm"), "a2a+p2p");
  EXPECT_EQ(text("window"), "512,0");
  EXPECT_EQ(text("cp_size"), "2");
  EXPECT_EQ(text("training"), "true");
  EXPECT_EQ(text("bias"), "none");
  EXPECT_EQ(text("seqlens"), "none");
  EXPECT_EQ(text("input_scale"), "1");
  c.input_scale = 2.5;
  EXPECT_EQ(text("input_scale"), "2.5");
  c.score_offset = -65536;
  EXPECT_EQ(text("score_offset"), "-65536");
  c.bias = BiasShape::shape_1hss;
  c.seqlens = {0, 8};
  EXPECT_EQ(text("bias"), "1hss");
  EXPECT_EQ(text("seqlens"), "0,8");
  c.group_ranks = {{0, 1}, {2, 3}};
  EXPECT_EQ(text("group_ranks"), "0,1+2,3");
}

TEST(CaseJson, FieldsSayWhatTheyHold) {
  using Kind = CaseField::Kind;
  const auto kind = [](std::string_view name) { return find_case_field(name)->kind; };
  EXPECT_EQ(kind("model"), Kind::text);
  EXPECT_EQ(kind("seed"), Kind::number);
  EXPECT_EQ(kind("input_scale"), Kind::real);
  EXPECT_EQ(kind("score_offset"), Kind::real);
  EXPECT_EQ(kind("causal"), Kind::boolean);
  EXPECT_EQ(kind("bias"), Kind::name);
  EXPECT_EQ(kind("window"), Kind::list);
  EXPECT_EQ(kind("seqlens"), Kind::list);
  EXPECT_EQ(kind("mask"), Kind::list);
  EXPECT_THAT(find_case_field("bias")->names(), testing::ElementsAre("1hss", "bhss", "b1ss", "11ss", "111s", "none"));
  EXPECT_THAT(find_case_field("seed")->names(), testing::IsEmpty());
}

TEST(ShortJson, HoldsTheSizesAndWhatIsNotTheDefault) {
  Case c;
  c.seqlen_q = c.seqlen_kv = 8;
  c.heads = c.kv_heads = c.head_dim_qk = c.head_dim_v = 1;
  c.comm = CommType::a2a;
  c.window = {3, -1};
  EXPECT_EQ(short_json(c).dump(), R"({"comm":"a2a","seqlen_q":8,"seqlen_kv":8,"heads":1,"kv_heads":1,"head_dim_qk":1,)"
                                  R"("head_dim_v":1,"window":[3,-1]})");
  EXPECT_EQ(parse_case(short_json(c), "it"), c);
}

}  // namespace
}  // namespace cp_pool
