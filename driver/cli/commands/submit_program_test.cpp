// `cp-pool submit` on one case: by its ID or from a file, with edits.
#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

using SubmitProgram = CommandLine;

TEST_F(SubmitProgram, SubmitRunsACaseByItsId) {
  const Finished done = call({"submit", kPass, "--matrix", path("demo.json"), "--worker", kWorker, "--json"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  const auto lines = json_lines(done.out);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["id"], kPass);
  EXPECT_EQ(lines[0]["outcome"], "pass");
  EXPECT_EQ(lines[0]["checks"][0]["tensor"], "dq");
}

TEST_F(SubmitProgram, SubmitRunsACaseFileAndItsRerunCommandWorks) {
  write_file(path("my case.json"), case_of("fail"));
  const Finished done = call({"submit", path("my case.json"), "--worker", kWorker, "--json"});
  EXPECT_EQ(done.exit_code, 100) << done.err;
  const auto answer = nlohmann::json::parse(done.out);
  EXPECT_EQ(answer["outcome"], "fail");
  EXPECT_THAT(run_to_end({"sh", "-c", answer["rerun"].get<std::string>()}),
              exits(100, last_line(StartsWith("1 expanded = 0 pass + 1 fail, "))));
}

TEST_F(SubmitProgram, AnAnswerThatIsNoLineOfItsOwnIsNamed) {
  write_file(path("c.json"), case_of("glued"));
  const Finished done =
      call({"submit", path("c.json"), "--worker", kWorker, "--timeout", "2s", "--grace", "100ms", "--json"});
  EXPECT_THAT(
      nlohmann::json::parse(done.out)["reason"].get<std::string>(),
      AllOf(StartsWith("no result within 2000 ms (--timeout)"),
            HasSubstr("has the sentinel, but does not begin with \"[CP_POOL_RESP] \": progress: 100 %[CP_POOL_RESP]")));
}

TEST_F(SubmitProgram, SubmitEditsFieldsAndShowsEveryCheck) {
  const std::string id = kPass;
  EXPECT_THAT(call({"submit", id, "--matrix", path("demo.json"), "--worker", kWorker, "--set", "model=fail", "--set",
                    "heads=2", "--set", "kv_heads=2"}),
              exits(100, out(HasSubstr("demo/fail/p2p/cp1/bshd/fp32/heads=2/kv_heads=2"), HasSubstr("ratio"),
                             HasSubstr("WRONG"), HasSubstr("--set model=fail --set heads=2"))));
  EXPECT_THAT(call({"submit", id, "--matrix", path("demo.json"), "--set", "heads=zero"}), refuses(94, "heads=zero"));
}

// A worker that others wrote cannot draw the lengths from the seed, so the request holds them.
TEST_F(SubmitProgram, TellsTheWorkerTheLengthsOfItsSequences) {
  const ScopedVariable requests{"CP_POOL_TEST_REQUESTS", path("requests").c_str()};
  const Finished done = call({"submit", kPass, "--matrix", path("demo.json"), "--worker", kWorker, "--set",
                              "layout=thd", "--set", "batch=3", "--set", "pad_between_seqs=true"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  const auto lengths = json_lines(read_file(path("requests"))).at(0)["lengths"];
  for (const char* name : {"valid_q", "padded_q", "valid_kv", "padded_kv"}) EXPECT_EQ(lengths[name].size(), 3U) << name;
}

}  // namespace
}  // namespace cp_pool::test
