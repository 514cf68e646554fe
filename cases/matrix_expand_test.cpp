#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_error.h"
#include "cases/json_text.h"
#include "cases/matrix.h"
#include "cases/testing/error_text.h"

namespace cp_pool {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Returns a matrix with the sizes of its cases in `defaults`, and with the keys in `more`.
Matrix matrix_of(std::string_view more, std::string_view suite = "s") {
  const std::string text = R"({"suite": ")" + std::string(suite) +
                           R"(", "defaults": {"seqlen_q": 64, "seqlen_kv": 64, "heads": 4, "kv_heads": 4,
                               "head_dim_qk": 8, "head_dim_v": 8},)" +
                           std::string(more) + "}";
  return parse_matrix(parse_json_text(text, "m.json"), "m.json");
}

std::vector<MatrixCase> expand_one(std::string_view more, std::string_view size = "full") {
  return expand(std::vector{matrix_of(more)}, size);
}

std::vector<std::string> ids(const std::vector<MatrixCase>& cases) {
  std::vector<std::string> list;
  list.reserve(cases.size());
  for (const MatrixCase& entry : cases) list.push_back(entry.id);
  return list;
}

std::string expansion_error_of(std::string_view more, std::string_view size = "full") {
  return test::error_text([&] { expand_one(more, size); });
}

TEST(MatrixExpand, WithoutAxesAModelIsOneCase) {
  const auto cases =
      expand_one(R"("seed": 7, "models": {"a": {"causal": true, "tags": ["t"]}}, "sizes": {"full": {}})");
  ASSERT_EQ(cases.size(), 1U);
  Case expected;
  expected.suite = "s";
  expected.model = "a";
  expected.seqlen_q = expected.seqlen_kv = 64;
  expected.heads = expected.kv_heads = 4;
  expected.head_dim_qk = expected.head_dim_v = 8;
  expected.causal = true;
  expected.seed = 7;
  EXPECT_EQ(cases[0].c, expected);
  EXPECT_EQ(cases[0].id, "s/a/p2p/cp2/bshd/bf16");
  EXPECT_EQ(cases[0].size, "full");
  EXPECT_THAT(cases[0].tags, ElementsAre("t"));
  EXPECT_EQ(cases[0].source, "m.json: $.models.a");
}

TEST(MatrixExpand, CasesThatShareInputsStandTogether) {
  const auto cases =
      expand_one(R"("axes": {"comm": ["p2p", "a2a"], "layout": ["sbhd", "bshd"], "dtype": ["fp16", "bf16"]},
                                  "models": {"b": {}, "a": {}}, "sizes": {"full": {}})");
  const std::vector<std::string> list = ids(cases);
  ASSERT_EQ(list.size(), 16U);
  EXPECT_THAT(std::vector<std::string>(list.begin(), list.begin() + 5),
              ElementsAre("s/b/p2p/cp2/sbhd/fp16", "s/b/a2a/cp2/sbhd/fp16", "s/b/p2p/cp2/bshd/fp16",
                          "s/b/a2a/cp2/bshd/fp16", "s/b/p2p/cp2/sbhd/bf16"));
  EXPECT_EQ(list[8], "s/a/p2p/cp2/sbhd/fp16");
}

TEST(MatrixExpand, FurtherAxesAreShownInTheId) {
  EXPECT_THAT(ids(expand_one(R"("axes": {"training": [true, false], "backend": ["math", "flash"]},
                               "models": {"a": {}}, "sizes": {"full": {}})")),
              ElementsAre("s/a/p2p/cp2/bshd/bf16/backend=math", "s/a/p2p/cp2/bshd/bf16/backend=math/fwd",
                          "s/a/p2p/cp2/bshd/bf16/backend=flash", "s/a/p2p/cp2/bshd/bf16/backend=flash/fwd"));
}

TEST(MatrixExpand, AModelHasSeedsOfItsOwn) {
  const auto cases = expand_one(R"("seed": 7, "models": {"a": {"axes": {"seed": [7, 8]}}, "b": {"seed": 9}, "c": {}},
                                   "sizes": {"full": {}})");
  EXPECT_THAT(ids(cases), ElementsAre("s/a/p2p/cp2/bshd/bf16/seed=7", "s/a/p2p/cp2/bshd/bf16/seed=8",
                                      "s/b/p2p/cp2/bshd/bf16", "s/c/p2p/cp2/bshd/bf16"));
  std::vector<std::uint64_t> seeds;
  for (const MatrixCase& entry : cases) seeds.push_back(entry.c.seed);
  EXPECT_THAT(seeds, ElementsAre(7U, 8U, 9U, 7U));
}

// In the order of cases, in contrast, the backends of one problem are adjacent.
TEST(MatrixExpand, AnIdHasTheOrderOfTheJsonForm) {
  EXPECT_THAT(ids(expand_one(R"("axes": {"chunk": [0, 8], "backend": ["math", "flash"]},
                               "models": {"a": {}}, "sizes": {"full": {}})")),
              ElementsAre("s/a/p2p/cp2/bshd/bf16/backend=math/chunk=0", "s/a/p2p/cp2/bshd/bf16/backend=flash/chunk=0",
                          "s/a/p2p/cp2/bshd/bf16/backend=math/chunk=8", "s/a/p2p/cp2/bshd/bf16/backend=flash/chunk=8"));
}

TEST(MatrixExpand, AModelReplacesTheFilesAxes) {
  EXPECT_THAT(ids(expand_one(R"("axes": {"comm": ["p2p", "a2a"], "dtype": ["fp16", "bf16"]},
                               "models": {"a": {"dtype": "fp32"}, "b": {"axes": {"comm": ["all_gather"]}}},
                               "sizes": {"full": {}})")),
              ElementsAre("s/a/p2p/cp2/bshd/fp32", "s/a/a2a/cp2/bshd/fp32", "s/b/all_gather/cp2/bshd/fp16",
                          "s/b/all_gather/cp2/bshd/bf16"));
}

TEST(MatrixExpand, RulesSeeWhatEarlierOnesSet) {
  const auto cases = expand_one(R"("models": {"a": {"causal": true}, "b": {}},
    "rules": [{"when": "causal=true", "set": {"cp_size": 4}, "tags": ["wide"]},
              {"when": "cp_size>2 & tag=wide", "set": {"comm": "a2a+p2p"}, "tags": ["pairs"]}],
    "sizes": {"full": {}})");
  EXPECT_THAT(ids(cases), ElementsAre("s/a/a2a+p2p/cp4/bshd/bf16", "s/b/p2p/cp2/bshd/bf16"));
  EXPECT_THAT(cases[0].tags, ElementsAre("pairs", "wide"));
  EXPECT_THAT(cases[1].tags, IsEmpty());
}

TEST(MatrixExpand, ExcludesComeAfterRulesAndBeforeValidity) {
  EXPECT_THAT(ids(expand_one(R"("axes": {"layout": ["bshd", "thd"], "pad_between_seqs": [false, true]},
                               "models": {"a": {}, "b": {"heads": 3, "tags": ["broken"]}},
                               "rules": [{"when": "model=b", "set": {"chunk": 8}}],
                               "exclude": ["pad_between_seqs=true & !layout=thd", "chunk=8"],
                               "sizes": {"full": {}})")),
              ElementsAre("s/a/p2p/cp2/bshd/bf16", "s/a/p2p/cp2/thd/bf16", "s/a/p2p/cp2/thd/bf16/pad"));
}

TEST(MatrixExpand, ASizeChangesLengthsAndHeadsButNoId) {
  constexpr std::string_view kMore = R"("axes": {"dtype": ["bf16"], "window": [[32, -1], [16, 0]]},
    "models": {"a": {"layout": "thd", "seqlens": [0, 32], "chunk": 16}},
    "sizes": {"full": {}, "small": {"axes": {"dtype": ["fp32", "bf16"]},
      "divide": {"seqlen_q": 4, "seqlen_kv": 2, "window": 8, "seqlens": 4, "seqlens_kv": 4, "chunk": 8},
      "heads": {"4/4": "2/1"}}})";
  const auto full = expand_one(kMore);
  const auto small = expand_one(kMore, "small");
  EXPECT_THAT(ids(full), ElementsAre("s/a/p2p/cp2/thd/bf16/window=32,-1", "s/a/p2p/cp2/thd/bf16/window=16,0"));
  EXPECT_THAT(ids(small), ElementsAre("s/a/p2p/cp2/thd/fp32/window=32,-1", "s/a/p2p/cp2/thd/fp32/window=16,0",
                                      "s/a/p2p/cp2/thd/bf16/window=32,-1", "s/a/p2p/cp2/thd/bf16/window=16,0"));
  const Case& c = small[3].c;
  EXPECT_EQ(small[3].size, "small");
  EXPECT_EQ(c.seqlen_q, 16);
  EXPECT_EQ(c.seqlen_kv, 32);
  EXPECT_THAT(c.window, ElementsAre(2, 0));
  EXPECT_THAT(small[2].c.window, ElementsAre(4, -1));
  EXPECT_THAT(c.seqlens.value(), ElementsAre(0, 8));
  EXPECT_FALSE(c.seqlens_kv.has_value());
  EXPECT_EQ(c.chunk, 2);
  EXPECT_EQ(c.heads, 2);
  EXPECT_EQ(c.kv_heads, 1);
}

TEST(MatrixExpand, ASizeThatDoesNotFitIsAnError) {
  EXPECT_EQ(expansion_error_of(R"("models": {"a": {"window": [7, 0]}}, "sizes": {"full": {"divide": {"window": 2}}})"),
            "m.json: $.sizes.full.divide.window: 7 is not a multiple of 2 (in s/a/p2p/cp2/bshd/bf16)");
  EXPECT_EQ(expansion_error_of(R"("models": {"a": {}}, "sizes": {"full": {"heads": {"8/8": "2/2"}}})"),
            "m.json: $.sizes.full.heads: no entry for 4/4 (in s/a/p2p/cp2/bshd/bf16)");
  EXPECT_EQ(expansion_error_of(R"("models": {"a": {}}, "sizes": {"full": {"divide": {"seqlen_q": 32}}})"),
            "m.json: $.sizes.full.divide.seqlen_q: the length 2 of every sequence is not a multiple of 2 * cp_size (4) "
            "(in s/a/p2p/cp2/bshd/bf16)");
  EXPECT_EQ(expansion_error_of(R"("models": {"a": {}}, "sizes": {"full": {}, "small": {}})", "smal"),
            "m.json: $.sizes: no size 'smal'; did you mean 'small'? (known: full, small)");
}

TEST(MatrixExpand, ImpossibleCasesNameWhereTheValueStands) {
  EXPECT_EQ(expansion_error_of(R"("models": {"a": {"heads": 4, "kv_heads": 3}}, "sizes": {"full": {}})"),
            "m.json: $.models.a.kv_heads: heads (4) is not a multiple of kv_heads (3) (in s/a/p2p/cp2/bshd/bf16)");
  EXPECT_EQ(expansion_error_of(R"("axes": {"cp_size": [2, 5]}, "models": {"a": {}}, "sizes": {"full": {}})"),
            "m.json: $.defaults.seqlen_q: the length 64 of every sequence is not a multiple of 2 * cp_size (10) (in "
            "s/a/p2p/cp5/bshd/bf16)");
  EXPECT_EQ(expansion_error_of(R"("models": {"a": {"layout": "thd", "seqlens": [4, 5]}}, "sizes": {"full": {}})")
                .substr(0, 61),
            "m.json: $.models.a.seqlens: the length 5 of sequence 1 is not");
  EXPECT_EQ(
      expansion_error_of(R"("axes": {"comm": ["a2a+p2p"]}, "models": {"a": {}}, "sizes": {"full": {}})").substr(0, 56),
      "m.json: $.models.a: cp_size: 2 does not fit comm a2a+p2p");
}

TEST(MatrixExpand, EverySizeMustBeGivenSomewhere) {
  const Matrix matrix = parse_matrix(
      parse_json_text(R"({"suite": "s", "models": {"a": {"heads": 4}}, "sizes": {"full": {}}})", "m.json"), "m.json");
  EXPECT_THROW(
      {
        try {
          expand(std::vector{matrix}, "full");
        } catch (const CaseError& e) {
          EXPECT_STREQ(
              e.what(),
              "m.json: $.models.a: the sizes 'seqlen_q', 'seqlen_kv', 'kv_heads', 'head_dim_qk', 'head_dim_v' are "
              "missing: they are not set in the model, the defaults or the axes");
          throw;
        }
      },
      CaseError);
}

TEST(MatrixExpand, AMatrixOfMillionsIsRefusedBeforeItTakesAllMemory) {
  std::string numbers = "1";
  for (int i = 2; i <= 1001; ++i) numbers += "," + std::to_string(i);
  const std::string chunks = R"("axes": {"chunk": [)" + numbers + "]";
  const std::string models = R"(}, "models": {"a": {}, "b": {}}, "sizes": {"full": {}})";
  EXPECT_EQ(expansion_error_of(chunks + R"(, "batch": [)" + numbers + "]" + models),
            "m.json: $.models.a: with its axes the matrix has more than 1000000 combinations");
  const std::string seven_hundred = numbers.substr(0, numbers.find(",701"));
  EXPECT_EQ(expansion_error_of(chunks + R"(, "batch": [)" + seven_hundred + "]" + models),
            "m.json: $.models.b: with its axes the matrix has more than 1000000 combinations");
  EXPECT_EQ(expand_one(chunks + models).size(), 2002U);
}

TEST(MatrixExpand, AnIdBelongsToOneCase) {
  EXPECT_EQ(
      expansion_error_of(R"("axes": {"cp_size": [2, 4]}, "models": {"a": {}},
                       "rules": [{"when": "comm=p2p", "set": {"cp_size": 4}}], "sizes": {"full": {}})"),
      "two cases have the ID s/a/p2p/cp4/bshd/bf16: one of m.json: $.models.a with cp_size=2 ($.axes.cp_size[0]), "
      "one of m.json: $.models.a with cp_size=4 ($.axes.cp_size[1])");
  const Matrix matrix = matrix_of(R"("models": {"a": {}}, "sizes": {"full": {}})");
  EXPECT_THROW(expand(std::vector{matrix, matrix}, "full"), CaseError);
}

TEST(MatrixExpand, AMatrixThatExcludesAllItsCasesSaysSo) {
  EXPECT_EQ(expansion_error_of(R"("axes": {"cp_size": [2, 4]}, "models": {"a": {}, "b": {}},
                       "exclude": ["model=a", "comm=p2p"], "sizes": {"full": {}})"),
            "m.json: $.exclude: exclude removes all 4 combinations, so the matrix has no case");
}

TEST(MatrixExpand, MatricesFollowEachOther) {
  const std::vector<Matrix> matrices{matrix_of(R"("models": {"a": {}}, "sizes": {"full": {}})", "z"),
                                     matrix_of(R"("models": {"a": {}, "b": {}}, "sizes": {"full": {}})", "y")};
  const auto cases = expand(matrices, "full");
  EXPECT_THAT(ids(cases), ElementsAre("z/a/p2p/cp2/bshd/bf16", "y/a/p2p/cp2/bshd/bf16", "y/b/p2p/cp2/bshd/bf16"));
}

TEST(MatrixExpand, MarksWhatIsOptionalAfterTheRules) {
  const auto cases = expand_one(R"("axes": {"comm": ["p2p", "a2a"]}, "models": {"a": {}, "b": {"tags": ["t"]}},
      "rules": [{"when": "comm=a2a", "tags": ["more"]}], "optional": ["tag=more & tag=t"], "sizes": {"full": {}})");
  std::vector<std::string> optional;
  for (const MatrixCase& entry : cases) {
    if (entry.optional) optional.push_back(entry.id);
  }
  EXPECT_EQ(cases.size(), 4U);
  EXPECT_THAT(optional, ElementsAre("s/b/a2a/cp2/bshd/bf16"));
}

TEST(MatrixExpand, AModelMayBeACall) {
  const auto cases = expand_one(R"("models": {
    "sum": {"call": "m:f", "arguments": {"n": 3}, "axes": {"dtype": ["bf16", "a b"], "cp_size": [2, 4], "deep": [[1]]},
            "tags": ["t"]},
    "one": {"call": "m:g", "cp_size": 1}},
    "rules": [{"when": "cp_size=4 & arg.n=3", "tags": ["wide"]}], "optional": ["model=one"])");
  EXPECT_THAT(ids(cases), ElementsAre("s/sum/bf16/cp2/deep=_1_", "s/sum/bf16/cp4/deep=_1_", "s/sum/a_b/cp2/deep=_1_",
                                      "s/sum/a_b/cp4/deep=_1_", "s/one"));
  ASSERT_TRUE(cases[1].call);
  EXPECT_EQ(to_json(*cases[1].call), Json::parse(R"({"function": "m:f", "arguments":
                {"n": 3, "dtype": "bf16", "deep": [1]}, "cp_size": 4})"));
  EXPECT_THAT(cases[0].tags, ElementsAre("t"));
  EXPECT_THAT(cases[1].tags, ElementsAre("t", "wide"));
  EXPECT_EQ(cases[1].size, "full");
  EXPECT_EQ(cases[4].call->cp_size, 1);
  EXPECT_TRUE(cases[4].optional);
}

TEST(MatrixExpand, CallsStandBesideAttentionCasesAtEverySize) {
  const char* const both = R"("models": {"a": {}, "f": {"call": "m:f"}}, "sizes": {"full": {}, "small": {}})";
  EXPECT_THAT(ids(expand_one(both)), ElementsAre("s/a/p2p/cp2/bshd/bf16", "s/f"));
  EXPECT_THAT(ids(expand_one(both, "small")), ElementsAre("s/a/p2p/cp2/bshd/bf16", "s/f"));
  EXPECT_THAT(expansion_error_of(both, "huge"), testing::HasSubstr("no size 'huge'"));
}

TEST(MatrixExpand, WhatACallCannotHaveIsAnError) {
  EXPECT_THAT(expansion_error_of(R"("models": {"f": {"call": "m:f"}},
                                    "rules": [{"when": "model=f", "set": {"causal": true}}])"),
              testing::HasSubstr("a rule sets nothing in a call (in s/f)"));
  EXPECT_THAT(expansion_error_of(R"("models": {"f": {"call": "m:f", "axes": {"x": ["a&b", "a|b"]}}})"),
              testing::HasSubstr("two cases have the ID s/f/a_b"));
}

}  // namespace
}  // namespace cp_pool
