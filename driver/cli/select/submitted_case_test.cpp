#include "driver/cli/select/submitted_case.h"

#include <set>
#include <sys/stat.h>

#include <gmock/gmock.h>

#include "cases/json_text.h"
#include "cases/testing/error_text.h"
#include "cases/testing/temporary_folder.h"
#include "driver/cli/shell_words.h"
#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using namespace ::testing;

const std::string kCase = R"("seqlen_q":64,"seqlen_kv":64,"heads":4,"kv_heads":2,"head_dim_qk":16,"head_dim_v":16)";

Item submitted(const std::string& text, const std::vector<std::string>& edits = {}) {
  return read_submitted_case(parse_json_text(text, "<stdin>", 3), "<stdin>:3", edits);
}

Case submitted_case(const std::string& text, const std::vector<std::string>& edits = {}) {
  return test::attention(submitted(text, edits).payload);
}

Item item_of(const std::string& text, const ExecutionOptions& options) {
  return read_item(parse_json_text(text, "<stdin>", 3), "<stdin>:3", {}, options, "cp-pool");
}

std::string error_of_submitted(const std::string& text, const std::vector<std::string>& edits = {}) {
  return test::error_text([&] { submitted(text, edits); });
}

TEST(SubmittedCase, WithoutAnIdItIsCalledAfterItsFieldsAndAShortHash) {
  EXPECT_THAT(submitted("{" + kCase + "}").id, MatchesRegex("adhoc/case/p2p/cp2/bshd/bf16/hash=[0-9a-f]{10}"));
  EXPECT_EQ(submitted("{" + kCase + "}").id, submitted("{\"causal\":false," + kCase + "}").id);
}

TEST(SubmittedCase, CasesThatDifferInAnyFieldDifferInTheirId) {
  const Case base = submitted_case("{\"layout\":\"thd\",\"pad_between_seqs\":true," + kCase + "}");
  const auto edits = split_words(
      "suite=s model=m backend=flash comm=all_gather cp_size=4 layout=bshd dtype=fp32 batch=3 "
      "seqlen_q=32 seqlen_kv=128 heads=8 kv_heads=4 head_dim_qk=8 head_dim_v=8 causal=true window=4,0 "
      R"(chunk=8 'mask=[[0,4,0,4,"causal"]]' softcap=30 softmax=learnable bias=1hss max_logit=true )"
      "seqlens=3,5 seqlens_kv=3,5 pad_between_seqs=false training=false deterministic=true seed=7 fp8={} "
      "input_scale=4 score_offset=-100 strided=true replicated=2 all_queries=true group=2 "
      "'group_ranks=[[0,1]]'");
  std::set<std::string> fields;
  std::set<std::string> ids{submitted(to_json(base).dump()).id};
  for (const std::string& edit : edits.value()) {
    fields.insert(edit.substr(0, edit.find('=')));
    Json json = to_json(base);
    Case edited = base;
    const CaseField* field = find_case_field(edit.substr(0, edit.find('=')));
    ASSERT_NE(field, nullptr) << edit;
    try {
      edited = submitted_case(json.dump(), {edit});
    } catch (const std::exception&) {  // layout=bshd allows no padding
      json["pad_between_seqs"] = false;
      edited = submitted_case(json.dump(), {edit});
    }
    EXPECT_TRUE(ids.insert(submitted(to_json(edited).dump()).id).second) << edit;
  }
  const std::string lengths = submitted(to_json(base).dump(), {"seqlens=3,5", "group_lengths=[[3,5]]"}).id;
  EXPECT_TRUE(ids.insert(lengths).second);
  fields.insert("group_lengths");
  const std::vector<std::string> fours{"comm=a2a+p2p", "cp_size=8", "pad_between_seqs=true", "inner=4"};
  EXPECT_TRUE(ids.insert(submitted(to_json(base).dump(), fours).id).second);
  fields.insert("inner");
  for (const std::string& name : case_field_names()) {
    EXPECT_TRUE(fields.contains(name)) << "what of " << name << "?";
  }
}

TEST(SubmittedCase, KeepsTheIdThatItWasGiven) {
  EXPECT_EQ(submitted("{\"id\":\"mine 7\"," + kCase + "}").id, "mine 7");
  EXPECT_EQ(submitted("{\"id\":\"mine\"," + kCase + "}", {"heads=8", "comm=a2a", "heads=4"}).id,
            "mine/heads=4/comm=a2a");
}

TEST(SubmittedCase, MayBeAnObjectOfTheList) {
  const Item listed = submitted(R"({"id":"quick/x","world_size":2,"size":"small","tags":["a"],"case":{)" + kCase +
                                R"(,"causal":true},"lengths":{"valid_q":[64]}})");
  EXPECT_EQ(listed.id, "quick/x");
  EXPECT_TRUE(test::attention(listed.payload).causal);
  EXPECT_EQ(submitted(to_json(listed).dump()).id, "quick/x");
  EXPECT_TRUE(submitted(to_json(listed).dump()).payload == listed.payload);
}

TEST(SubmittedCase, ErrorsNameThePlace) {
  EXPECT_EQ(error_of_submitted("[1]"), "<stdin>:3: $: an array of 1 is not an object");
  EXPECT_EQ(error_of_submitted("{\"id\":7," + kCase + "}"), "<stdin>:3: $.id: 7 is not a string");
  EXPECT_EQ(error_of_submitted("{\"id\":\"\"," + kCase + "}"), "<stdin>:3: $.id: an ID cannot be empty");
  EXPECT_EQ(error_of_submitted("{\"id\":\"a\\u0007\"," + kCase + "}"),
            "<stdin>:3: $.id: \"a\\u0007\" has a control character");
  EXPECT_EQ(error_of_submitted("{\"id\":\"" + std::string(1001, 'x') + "\"," + kCase + "}"),
            "<stdin>:3: $.id: an ID has at most 1000 bytes, this one 1001");
  EXPECT_EQ(error_of_submitted("{\"case\":{\"heads\":\"four\"}}"),
            "<stdin>:3, case: $.heads: \"four\" is not an integer");
  EXPECT_THAT(error_of_submitted("{\"case\":{" + kCase + "},\"heads\":4}"),
              ::testing::StartsWith("<stdin>:3: $.heads: unknown key \"heads\""));
}

TEST(SubmittedCase, MayBeACall) {
  const Item call = submitted(R"({"call": {"function": "m:f", "arguments": {"n": 3}, "cp_size": 4},
                                           "id": "x", "timeout_ms": 250})");
  EXPECT_EQ(call.id, "x");
  EXPECT_TRUE(call.payload == Payload(Call{.function = "m:f", .arguments = {{"n", 3}}, .cp_size = 4}));
  EXPECT_EQ(call.timeout, std::chrono::milliseconds(250));
  EXPECT_TRUE(submitted(to_json(call).dump()).payload == call.payload);
  EXPECT_THAT(submitted(R"({"call": {"function": "m:f"}})").id, MatchesRegex("m/f/cp2/hash=[0-9a-f]{10}"));
  EXPECT_THAT(error_of_submitted(R"({"call": {"function": "m:f"}, "case": {}})"),
              ::testing::StartsWith("<stdin>:3: $.case: unknown key"));
  EXPECT_EQ(error_of_submitted(R"({"call": {"function": "m:f"}, "timeout_ms": 0})"),
            "<stdin>:3: $.timeout_ms: a deadline is at least 1 ms");
  EXPECT_EQ(error_of_submitted(R"({"call": {"function": "m:f"}})", {"heads=3"}),
            "<stdin>:3: $: --set changes attention cases, and this is a call");
}

TEST(SubmittedCase, ACallHasRanksThatRunCallsUnlessAWorkerIsNamed) {
  ExecutionOptions options;
  options.worker.python = "python3";
  const std::string call = R"({"call": {"function": "m:f"}})";
  const Item item = item_of(call, options);
  ASSERT_TRUE(item.ranks);
  EXPECT_EQ(item.ranks->worker_command,
            (std::vector<std::string>{"python3", "-m", "cp_pool.worker", "cp_pool.calls:ranks"}));
  EXPECT_FALSE(item.ranks->fork_server.empty());
  options.worker.adapter = "m:a";
  EXPECT_FALSE(item_of(call, options).ranks);
  EXPECT_FALSE(item_of("{" + kCase + "}", {}).ranks);
}

TEST(SubmittedCase, AFreshCallHasRanksThatNoOtherHas) {
  ExecutionOptions options;
  options.worker.adapter = "m:a";
  const Item item = item_of(R"({"call": {"function": "m:f"}, "fresh": true})", options);
  ASSERT_TRUE(item.ranks);
  EXPECT_THAT(item.ranks->environment, ::testing::ElementsAre("CP_POOL_FRESH=<stdin>:3"));
}

Case edit_case(const Case& c, const std::vector<std::string>& edits) {
  return parse_edited_case(to_json(c), "", edits);
}

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

using ::testing::HasSubstr;
using ::testing::Not;

TEST(IsId, IsTrueOfWhatIsNoFile) {
  EXPECT_TRUE(is_id("quick/causal/p2p/cp2/bshd/fp32"));
  EXPECT_FALSE(is_id("-"));
  EXPECT_FALSE(is_id("missing.json"));
  EXPECT_FALSE(is_id("{}"));
}

TEST(FindCase, ReadsACaseThatIsTheArgumentItself) {
  const std::string json =
      R"({"comm":"p2p","batch":1,"seqlen_q":16,"seqlen_kv":16,"heads":1,"kv_heads":1,"head_dim_qk":8,"head_dim_v":8})";
  const Item named = find_case(json, {}, {"cp_size=4"}, {}, "cp-pool");
  EXPECT_EQ(test::attention(named.payload).cp_size, 4);
  EXPECT_EQ(test::attention(named.payload).seqlen_q, 16);
  EXPECT_EQ(named.rerun.find("printf "), 0U) << named.rerun;
  EXPECT_TRUE(case_inputs(json, {}).empty());
  EXPECT_THROW((void)find_case("{", {}, {}, {}, "cp-pool"), CaseError);
}

TEST(FindCase, SaysWhereAFileOfSeveralCasesGoes) {
  const test::TemporaryFolder folder;
  const auto error_of = [&](const std::string& text) -> std::string {
    test::write_file(folder / "two.jsonl", text);
    try {
      (void)find_case((folder / "two.jsonl").string(), {}, {}, {}, "cp-pool");
    } catch (const CaseError& e) {
      return e.what();
    }
    return "no error";
  };
  const std::string lines = error_of("{\"comm\": \"p2p\"}\n{\"comm\": \"a2a\"}\n");
  EXPECT_THAT(lines, HasSubstr("two.jsonl:2:1: "));
  EXPECT_THAT(lines, HasSubstr("a stream goes to submit -: cp-pool submit - < /"));
  EXPECT_THAT(error_of("[{\"comm\": \"p2p\"}]"), HasSubstr("| cp-pool submit -"));
  EXPECT_THAT(error_of("{\"comm\": \"p2p\","), Not(HasSubstr("submit -"))) << "of a case that ends early";
}

TEST(IsId, IsFalseOfFilesAndPipesAndTrueOfFolders) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "case", "{}");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(is_id((folder / "case").string()));
  EXPECT_FALSE(is_id((folder / "pipe").string())) << "as the shell gives for <(..)";
  EXPECT_TRUE(is_id(folder.path().string()));
}

TEST(FindCase, OfAnIdKeepsTheEditsInItsRerun) {
  const SelectionOptions te_flash{.matrices = {"te-flash"}, .size = "small"};
  const Item named =
      find_case("te-flash/cp_2_0/p2p/cp2/thd/bf16/pad", te_flash, {"comm=a2a", "window=64,0"}, {}, "cp-pool");
  EXPECT_EQ(named.rerun,
            "cp-pool submit te-flash/cp_2_0/p2p/cp2/thd/bf16/pad --matrix te-flash --size small --set comm=a2a "
            "--set window=64,0");
}

TEST(RerunOfJson, CarriesTheCase) {
  EXPECT_EQ(rerun_of_json("cp-pool", R"({"heads":4})", {}), R"(printf '%s\n' '{"heads":4}' | cp-pool submit -)");
}

}  // namespace
}  // namespace cp_pool
