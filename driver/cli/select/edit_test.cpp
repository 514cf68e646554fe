#include "driver/cli/select/edit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_error.h"
#include "cases/json_text.h"
#include "cases/testing/error_text.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string edit_error(const std::vector<std::string>& edits) {
  return test::error_text([&] { edit_case(test::example_case(), edits); });
}

TEST(EditCase, SetsFieldsFromTextOrJson) {
  const Case c = edit_case(test::example_case(),
                           {"comm=a2a", "cp_size=4", "causal=true", "window=64,0", "model=mine", "deterministic=true"});
  EXPECT_EQ(c.comm, CommType::a2a);
  EXPECT_EQ(c.cp_size, 4);
  EXPECT_EQ(c.window, (std::array<std::int64_t, 2>{64, 0}));
  EXPECT_EQ(c.model, "mine");
  EXPECT_TRUE(c.deterministic);
}

TEST(EditCase, ANumberIsANameWhereANameIsDue) {
  EXPECT_EQ(edit_case(test::example_case(), {"model=7"}).model, "7");
  EXPECT_EQ(edit_case(test::example_case(), {"model=18446744073709551616"}).model, "18446744073709551616");
}

TEST(EditCase, TheLastEditOfAFieldCountsAndOthersStay) {
  const Case c = edit_case(test::example_case(), {"heads=8", "heads=16"});
  EXPECT_EQ(c.heads, 16);
  EXPECT_EQ(c.kv_heads, test::example_case().kv_heads);
}

TEST(EditCase, AListAndNothingAreValuesToo) {
  const Case c = edit_case(test::example_case(), {"layout=thd", "seqlens=[100,28]"});
  EXPECT_EQ(c.seqlens, (std::vector<std::int64_t>{100, 28}));
  EXPECT_EQ(edit_case(c, {"seqlens=none"}).seqlens, std::nullopt);
  EXPECT_EQ(edit_case(c, {"batch=1", "seqlens=100"}).seqlens, (std::vector<std::int64_t>{100}));
}

TEST(ParseEditedCase, AsksNothingOfTheWholeBeforeItIsEdited) {
  const Json text = parse_json_text(
      R"({"layout": "thd", "batch": 2, "seqlen_q": 128, "heads": 4, "kv_heads": 4, "head_dim_qk": 16, "head_dim_v": 16,
          "seqlens": [100, 37]})",
      "mine.json");
  const Case c = parse_edited_case(text, "mine.json", {"seqlen_kv=128", "pad_between_seqs=true"});
  EXPECT_EQ(c.seqlen_kv, 128);
  EXPECT_TRUE(c.pad_between_seqs);
  EXPECT_EQ(c.seqlens, (std::vector<std::int64_t>{100, 37}));
  const auto error = [&text](const std::vector<std::string>& edits) {
    return test::error_text([&] { parse_edited_case(text, "mine.json", edits); });
  };
  EXPECT_THAT(error({}), StartsWith("mine.json: $.seqlen_kv: this size is missing"));
  EXPECT_THAT(error({"heads=8"}), StartsWith("mine.json with --set heads=8: $.seqlen_kv: this size is missing"));
  EXPECT_THAT(error({"heads=8", "seqlen_kv=128"}),
              StartsWith("mine.json with --set heads=8 --set seqlen_kv=128: $.seqlens[1]: the length 37"));
  EXPECT_THAT(error({"heads=many"}), StartsWith("--set heads=many: $.heads: "));
  EXPECT_THROW(parse_edited_case(Json::array(), "mine.json", {"heads=8"}), CaseError);
}

TEST(EditCase, ErrorsNameTheEdit) {
  EXPECT_THAT(edit_error({"heads"}), HasSubstr("--set heads: it is not KEY=VALUE"));
  EXPECT_THAT(edit_error({"head=4"}), HasSubstr("did you mean 'heads'"));
  EXPECT_THAT(edit_error({"comm=p3p"}), HasSubstr("p3p"));
  EXPECT_THAT(edit_error({"heads=many"}), HasSubstr("many"));
  EXPECT_THAT(edit_error({"seed=-1"}), HasSubstr("-1 is negative"));
  EXPECT_EQ(edit_error({"seed=18446744073709551616"}),
            "--set seed=18446744073709551616: $: 18446744073709551616 does not fit into 64 bits");
  EXPECT_THAT(edit_error({"heads=3"}), HasSubstr("--set"));  // 3 heads cannot share 2 kv_heads
}

TEST(FixedFields, AreTheEditsAsACaseWritesThem) {
  const auto fixed =
      fixed_fields({"comm=a2a", "window=512,0", "seqlens=8", "input_scale=2.0", "comm=p2p", "bias=none"});
  std::vector<std::string> texts;
  for (const search::FixedField& one : fixed) texts.push_back(std::string(one.field->name) + "=" + one.value.dump());
  EXPECT_THAT(texts,
              ::testing::ElementsAre("window=[512,0]", "seqlens=[8]", "input_scale=2", "comm=\"p2p\"", "bias=null"));
  EXPECT_THAT(test::error_text([] { fixed_fields({"com=a2a"}); }), ::testing::HasSubstr("did you mean 'comm'"));
  EXPECT_THAT(test::error_text([] { fixed_fields({"heads=two"}); }), ::testing::HasSubstr("--set heads=two: $.heads:"));
}

}  // namespace
}  // namespace cp_pool
