// Tests the output of `cp-pool list`.
#include <fmt/format.h>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using ::testing::ElementsAre;

using ListProgram = CommandLine;

TEST_F(ListProgram, ShardsAreDisjointAndTogetherAllCases) {
  const auto listed = [&](const Words& more) {
    return call(with({"list", "--matrix", path("demo.json")}, more)).out_lines();
  };
  const Words all = listed({});
  ASSERT_GE(all.size(), 4U);
  Words together;
  for (const char* shard : {"1/3", "2/3", "3/3"}) {
    const Words part = listed({"--shard", shard});
    EXPECT_GE(part.size(), all.size() / 3 - 1) << shard;
    EXPECT_TRUE(std::ranges::is_sorted(part, {}, [&](const std::string& id) { return std::ranges::find(all, id); }));
    together.insert(together.end(), part.begin(), part.end());
  }
  EXPECT_THAT(together, ::testing::UnorderedElementsAreArray(all));
}

TEST_F(ListProgram, ListPrintsIdsThatFilterTakesBack) {
  const Finished all = call({"list", "--matrix", path("demo.json")});
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_EQ(all.out_lines().size(), 7U);
  for (const std::string& id : all.out_lines()) {
    EXPECT_THAT(call({"list", "--matrix", path("demo.json"), "--filter", id}).out_lines(), ElementsAre(id));
  }
}

TEST_F(ListProgram, ListPrintsJsonAndCounts) {
  const Finished list = call({"list", "--matrix", path("demo.json"), "--filter", "model=pass", "--json"});
  const auto array = nlohmann::json::parse(list.out);
  ASSERT_EQ(array.size(), 1U);
  EXPECT_EQ(array[0]["id"], kPass);
  EXPECT_EQ(array[0]["world_size"], 1);
  EXPECT_EQ(array[0]["size"], "small");
  EXPECT_TRUE(array[0]["tags"].is_array());
  EXPECT_EQ(array[0]["case"]["model"], "pass");
  EXPECT_EQ(array[0]["lengths"]["padded_kv"], nlohmann::json({16}));
  EXPECT_EQ(call({"list", "--matrix", path("demo.json"), "--count"}).out, "demo 7\ntotal 7\n");
  EXPECT_EQ(nlohmann::json::parse(call({"list", "--matrix", path("demo.json"), "--filter", "none/*", "--json"}).out),
            nlohmann::json::array());
}

TEST_F(ListProgram, FormatsAreThoseOfOtherProgramsOfTests) {
  const Finished gtest = call({"list", "--matrix", path("demo.json"), "--filter", "model=pass*", "--format", "gtest"});
  EXPECT_EQ(gtest.out, "demo.\n  pass/p2p/cp1/bshd/fp32\n  pass_2/p2p/cp1/bshd/fp32\n");
  const Finished ctest = call({"list", "--matrix", path("demo.json"), "--filter", "model=pass", "--format", "ctest",
                               "--test-args", "--worker 'a b' --timeout 2m"});
  const Words lines = ctest.out_lines();
  ASSERT_EQ(lines.size(), 2U) << ctest.err;
  EXPECT_THAT(lines[0], ::testing::AllOf(::testing::StartsWith("add_test(\"demo/pass/p2p/cp1/bshd/fp32\" \"/"),
                                         ::testing::EndsWith("\"--worker\" \"a b\" \"--timeout\" \"2m\")")));
  EXPECT_THAT(lines[1], ::testing::HasSubstr("PROCESSORS 1 LABELS \"demo\""));
  EXPECT_EQ(call({"list", "--test-args", "x"}).exit_code, 2);
  EXPECT_EQ(call({"list", "--format", "ctest", "--json"}).exit_code, 2);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep memory that was freed
TEST_F(ListProgram, CountsManyCasesWithoutKeepingThem) {
  std::string chunks = "1";
  std::string scales = "0.1";
  for (int i = 2; i <= 100; ++i) {
    chunks += fmt::format(",{}", i);
    scales += fmt::format(",{:.1f}", 0.1 * i);
  }
  write_file(folder / "many.json",
             fmt::format(R"({{"suite":"many","defaults":{{{}}},"models":{{"m":{{}}}},)"
                         R"("axes":{{"chunk":[{}],"input_scale":[{}]}},"sizes":{{"small":{{}}}}}})",
                         kSizes, chunks, scales));
  const Finished few = call({"list", "--matrix", path("demo.json"), "--count"});
  const Finished many = call({"list", "--matrix", path("many.json"), "--count"});
  EXPECT_EQ(many.out, "many 10000\ntotal 10000\n") << many.err;
  constexpr long kLargestCases = 4 * 1024;  // KiB; 10,000 cases and their IDs have some 10 MiB
  EXPECT_LT(many.most_rss_kib - few.most_rss_kib, kLargestCases) << many.most_rss_kib;
}
#endif

}  // namespace
}  // namespace cp_pool::test
