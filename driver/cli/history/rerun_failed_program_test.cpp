// Tests how the real program reruns the failures of an earlier run.
#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

using RerunFailed = CommandLine;

TEST_F(RerunFailed, TheRerunCommandOfAFailureRerunsThatCaseAlone) {
  const Finished first = run("model=fail | model=pass | model=error");
  ASSERT_THAT(first.out, HasSubstr("    rerun: "));
  const std::size_t begin = first.out.find("    rerun: ") + std::string{"    rerun: "}.size();
  const std::string command = first.out.substr(begin, first.out.find('\n', begin) - begin);
  const Finished again = run_to_end({"sh", "-c", command});
  EXPECT_EQ(again.exit_code, 100) << command << again.err;
  EXPECT_THAT(again.out, HasSubstr("fail  demo/fail/p2p/cp1/bshd/fp32 after"));
  EXPECT_THAT(again.last_line(), StartsWith("1 expanded = 0 pass + 1 fail, "));
}

TEST_F(RerunFailed, WhatFailedIsRerunFromTheEventsOfTheRun) {
  const Words again = {"--rerun-failed", path("e"), "--events", path("e")};
  ASSERT_EQ(run("!model=hang", {"--events", path("e")}).exit_code, 100);
  const Finished some = run("!model=crash", again);  // selects two of the three that failed
  EXPECT_THAT(some, exits(100, err(""), last_line(StartsWith("2 expanded = 0 pass + 1 fail + 1 error, "))));
  EXPECT_THAT(run("*", again).last_line(), StartsWith("2 expanded = 0 pass + 1 fail + 1 error, "));
  EXPECT_THAT(run("model=crash", again),
              refuses(4, "none of the 2 cases that failed in " + path("e") + " is selected"));
  ASSERT_EQ(run("model=pass | model=skip", {"--events", path("e")}).exit_code, 0);
  EXPECT_THAT(run("*", again), refuses(4, "nothing failed in " + path("e") + ": its cases passed or were skipped"));
}

TEST_F(RerunFailed, TheCommandAfterAListOfFailuresRerunsThem) {
  const Finished first = run("model=pass* | model=fail | model=error", {"--events", path("e"), "--no-progress"});
  ASSERT_THAT(first.out, HasSubstr("2 failed:\n  fail     demo/fail/p2p/cp1/bshd/fp32: dq is wrong\n"));
  const std::string lead = "\nrerun them: ";
  const std::size_t begin = first.out.find(lead) + lead.size();
  const std::string command = first.out.substr(begin, first.out.find('\n', begin) - begin);
  const Finished again = run_to_end({"sh", "-c", command});
  EXPECT_THAT(again.last_line(), StartsWith("2 expanded = 0 pass + 1 fail + 1 error, ")) << command << again.err;
  EXPECT_THAT(again.out, Not(HasSubstr("rerun them"))) << "there is no events file of this run";
}

TEST_F(RerunFailed, CasesToRerunThatNoMatrixHasAreNamed) {
  ASSERT_EQ(run("model=fail | model=error", {"--events", path("e"), "--size", "tiny"}).exit_code, 100);
  write_file(path("demo.json"),
             std::string{R"({"suite":"demo","defaults":{"cp_size":1,"comm":"p2p","layout":"bshd",)"} +
                 R"("dtype":"fp32",)" + kSizes + R"(},"models":{"fail":{}},"sizes":{"small":{}}})");
  EXPECT_THAT(run("*", {"--rerun-failed", path("e")}),
              exits(100, last_line(StartsWith("1 expanded = 0 pass + 1 fail, ")),
                    err("cp-pool: warning: the cases of " + path("e") +
                        " were of size tiny, and now are of size small\n"
                        "cp-pool: warning: 1 of the 2 cases that failed in " +
                        path("e") + " is not in the given matrices (" + path("demo.json") +
                        "), such as demo/error/p2p/cp1/bshd/fp32; that run used " + path("demo.json") + "\n")));
  write_file(path("e"), "{\"type\":\"run_started\"}\nno event\n");
  EXPECT_THAT(run("*", {"--rerun-failed", path("e")}),
              refuses(94, path("e") + " is no events file of cp-pool run --events: line 2"));
}

TEST_F(RerunFailed, CasesToRerunOfARunThatDidNotEndAreSaidToBePartOfThem) {
  write_file(path("e"), R"({"type":"run_started","title":"demo","size":"small"}
{"type":"case_finished","id":"demo/fail/p2p/cp1/bshd/fp32","outcome":"fail","case":{"suite":"demo","model":"fail",)"
                        R"("seqlen_q":8,"seqlen_kv":8,"heads":1,"kv_heads":1,"head_dim_qk":8,"head_dim_v":8}}
)");
  const Finished done = run("*", {"--rerun-failed", path("e")});
  EXPECT_THAT(done.last_line(), StartsWith("1 expanded = 0 pass + 1 fail, "));
  EXPECT_EQ(
      done.err,
      "cp-pool: warning: " + path("e") +
          " was cut off before its run ended: the cases that had not started are unknown, so they are not selected\n");
  write_file(path("e"), R"({"type":"run_started","title":"demo","size":"small"})"
                        "\n");
  EXPECT_THAT(run("*", {"--rerun-failed", path("e")}), exits(94)) << "a loop until 4 would take it for the end";
}

TEST_F(RerunFailed, ARerunThatWasKilledCanBeRerun) {
  ASSERT_EQ(run("model=fail | model=error | model=pass", {"--events", path("e")}).exit_code, 100);
  ASSERT_EQ(run("*", {"--rerun-failed", path("e"), "--events", path("e")}).exit_code, 100);
  const std::string events = read_file(path("e"));
  write_file(path("e"), events.substr(0, events.find('\n') + 1));
  const Finished done = run("*", {"--rerun-failed", path("e")});
  EXPECT_EQ(done.err, "");
  EXPECT_THAT(done.last_line(), StartsWith("2 expanded = 0 pass + 1 fail + 1 error, "));
}

TEST_F(RerunFailed, CasesToRerunThatAreInNoMatrixGivenAreNoEnd) {
  ASSERT_EQ(run("model=fail", {"--events", path("e")}).exit_code, 100);
  EXPECT_EQ(call({"run", "--matrix", "quick", "--rerun-failed", path("e")}).exit_code, 94);
  EXPECT_EQ(call({"run", "--matrix", "quick", "--rerun-failed", path("e"), "--shard", "1/2"}).exit_code, 94);
  EXPECT_EQ(call({"run", "--matrix", path("demo.json"), "--rerun-failed", path("e"), "--shard", "2/2"}).exit_code, 4);
}

}  // namespace
}  // namespace cp_pool::test
