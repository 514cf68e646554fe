// The real program compares times with those of an earlier run.
#include <cstdio>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

using Baseline = CommandLine;

TEST_F(Baseline, TimesAreComparedWithThoseOfAnEarlierRun) {
  const ScopedVariable slow{"CP_POOL_TEST_STEP_MS", "8"};
  ASSERT_EQ(run("model=pass", {"--mode", "perf", "--events", path("e")}).exit_code, 0);
  const ScopedVariable fast{"CP_POOL_TEST_STEP_MS", "6"};
  EXPECT_THAT(run("model=pass*", {"--mode", "perf", "--baseline", path("e"), "--events", path("now")}),
              exits(0, out(HasSubstr("     8.000  0.750  demo/pass/p2p/cp1/bshd/fp32\n"),
                           HasSubstr("e: 1 of 2 cases in both, 6.000 ms now and 8.000 ms then: 0.750 of it\n"))));
  const auto lines = events_in(path("now"), "case_finished");
  const auto timed = std::ranges::find_if(lines, [](const auto& line) { return line["id"] == kPass; });
  ASSERT_NE(timed, lines.end());
  EXPECT_EQ((*timed)["perf"]["ratio"], 0.75);
  ASSERT_EQ(run("model=pass", {"--mode", "perf", "--events", path("one")}).exit_code, 0);
  const Finished other = run("model=pass_2", {"--mode", "perf", "--baseline", path("one")});
  EXPECT_THAT(other, exits(0, err(""))) << "nothing is judged, so a baseline may be of other cases";
}

TEST_F(Baseline, Exits94ForABaselineOfOtherSizes) {
  const ScopedVariable time{"CP_POOL_TEST_STEP_MS", "8"};
  ASSERT_EQ(run("model=pass*", {"--mode", "perf", "--events", path("e"), "--size", "tiny"}).exit_code, 0);
  const Finished done = run("model=pass*", {"--mode", "perf", "--baseline", path("e"), "--events", path("now")});
  EXPECT_EQ(done.exit_code, 94);
  EXPECT_THAT(done.err, is_one_error("the baseline " + path("e") +
                                     " is of other problems: demo/pass/p2p/cp1/bshd/fp32 has seqlen_q 8 there and 16 "
                                     "here (2 of 2 cases differ)"));
  EXPECT_EQ(done.out, "");
  EXPECT_FALSE(std::filesystem::exists(path("now")));
  EXPECT_THAT(call({"submit", kPass, "--matrix", path("demo.json"), "--worker", kWorker, "--mode", "perf", "--baseline",
                    path("e")}),
              refuses(94, "seqlen_q 8 there and 16 here"));
}

TEST_F(Baseline, ACaseThatBecameTooSlowIsAFailure) {
  const ScopedVariable fast{"CP_POOL_TEST_STEP_MS", "8"};
  ASSERT_EQ(run("model=pass", {"--mode", "perf", "--events", path("before")}).exit_code, 0);
  const auto run_with = [&](const std::string& filter, const std::string& max_ratio) {
    return run(filter, {"--mode", "perf", "--baseline", path("before"), "--events", path("e"), "--junit", path("j"),
                        "--max-ratio", max_ratio});
  };
  const ScopedVariable slow{"CP_POOL_TEST_STEP_MS", "12"};
  EXPECT_EQ(run_with("model=pass", "1.5").exit_code, 0) << "the limit itself is not too slow";
  const Finished done = run_with("model=pass*", "1.4");
  EXPECT_THAT(done, exits(100, err(StartsWith("cp-pool: warning: --max-ratio does not judge 1 of 2 cases"),
                                   HasSubstr("such as demo/pass_2/"))));
  const std::string reason = "1.500 times as slow as the baseline (12.000 ms, was 8.000 ms; --max-ratio 1.4)";
  EXPECT_THAT(done.out, AllOf(HasSubstr("fail  demo/pass/p2p/cp1/bshd/fp32 after"), HasSubstr("    " + reason + "\n"),
                              HasSubstr("     8.000  1.500  demo/pass/")));
  EXPECT_THAT(done.last_line(), StartsWith("2 expanded = 1 pass + 1 fail, "));
  EXPECT_THAT(read_file(path("j")), AllOf(HasSubstr("failures=\"1\""), HasSubstr("fail: " + reason),
                                          HasSubstr("[[PROPERTY|perf_baseline_ms=8]]\n[[PROPERTY|perf_ratio=1.5]]\n")));
  const auto lines = json_lines(read_file(path("e")));
  EXPECT_EQ(lines.back()["counts"]["fail"], 1);
  EXPECT_EQ(std::ranges::count_if(lines, [&](const auto& line) { return line.value("reason", "") == reason; }), 1);
  const Finished nothing = run_with("model=pass_2", "1.4");
  EXPECT_THAT(nothing, refuses(94, "--max-ratio has nothing to judge"));
  EXPECT_THAT(call({"submit", "demo/pass_2/p2p/cp1/bshd/fp32", "--matrix", path("demo.json"), "--worker", kWorker,
                    "--mode", "perf", "--baseline", path("before"), "--max-ratio", "1.4"}),
              refuses(94, "--max-ratio has nothing to judge"));
}

TEST_F(Baseline, ALineOfAStreamThatIsAnotherProblemInTheBaselineIsRefused) {
  const ScopedVariable time{"CP_POOL_TEST_STEP_MS", "8"};
  const std::string line = std::string{R"({"id":"one","suite":"s","model":"pass","cp_size":1,)"} + kSizes;
  const Words submit = {kProgram, "submit", "-", "--json", "--worker", kWorker, "--mode", "perf"};
  write_file(path("cases"), line + "}\n");
  Words first = submit;
  first.insert(first.end(), {"--events", path("e")});
  ASSERT_EQ(run_to_end(first, {.in = path("cases")}).exit_code, 0);
  write_file(path("cases"), line + R"(,"causal":true})" + "\n" + line + "}\n");
  Words second = submit;
  second.insert(second.end(), {"--baseline", path("e")});
  const Finished done = run_to_end(second, {.in = path("cases")});
  EXPECT_THAT(done, exits(94, err(HasSubstr("causal false there and true here (1 of 1 cases differ)\n"),
                                  EndsWith("cp-pool: error: 1 of the 2 cases from <stdin> were refused\n"))));
  const auto answers = json_lines(done.out);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0]["outcome"], "invalid");
  EXPECT_EQ(answers[1]["perf"]["ratio"], 1);
}

}  // namespace
}  // namespace cp_pool::test
