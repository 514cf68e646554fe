#include "driver/cli/select/case_source.h"

#include <sys/stat.h>

#include <gmock/gmock.h>

#include "cases/case_error.h"
#include "cases/testing/temporary_folder.h"
#include "driver/testing/attention.h"

namespace cp_pool {
namespace {

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

}  // namespace
}  // namespace cp_pool
