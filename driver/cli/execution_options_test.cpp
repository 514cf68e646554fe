#include "driver/cli/execution_options.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "driver/cli/commands/command_options.h"
#include "driver/cli/testing/parsed_command_line.h"
#include "worker/protocol/host_resources.h"

namespace cp_pool::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PerfMode, HasItsOptionsAndOnePoolAtATime) {
  EXPECT_FALSE(parse_as<RunCommandOptions>({"run"}).execution.config.perf);
  EXPECT_FALSE(parse_as<RunCommandOptions>({"run", "--mode", "verify"}).execution.config.perf);
  const auto plain = parse_as<RunCommandOptions>({"run", "--mode", "perf"}).execution;
  ASSERT_TRUE(plain.config.perf);
  EXPECT_EQ(plain.config.perf->warmup, 5);
  EXPECT_EQ(plain.config.perf->iterations, 20);
  EXPECT_EQ(plain.config.slots, 1);
  EXPECT_THAT(plain.rerun_arguments, ElementsAre("--mode", "perf"));
  const auto full = parse_as<SubmitOptions>({"submit", "x", "--mode", "perf", "--warmup", "0", "--iterations", "7",
                                             "--baseline", "before.jsonl"})
                        .execution;
  ASSERT_TRUE(full.config.perf);
  EXPECT_EQ(full.config.perf->warmup, 0);
  EXPECT_EQ(full.config.perf->iterations, 7);
  EXPECT_EQ(full.baseline, "before.jsonl");
  EXPECT_THAT(full.rerun_arguments, ElementsAre("--mode", "perf", "--warmup", "0", "--iterations", "7"));
}

TEST(PerfMode, ALimitOnTimesNeedsABaselineAndIsKeptByARerun) {
  const auto run =
      parse_as<RunCommandOptions>({"run", "--mode", "perf", "--baseline", "before.jsonl", "--max-ratio", "1.10"})
          .execution;
  EXPECT_EQ(run.config.max_ratio, 1.1);
  EXPECT_THAT(run.rerun_arguments, ElementsAre("--mode", "perf", "--baseline", "before.jsonl", "--max-ratio", "1.1"));
  EXPECT_THAT(usage_error({"run", "--mode", "perf", "--max-ratio", "1.1"}), HasSubstr("--max-ratio needs --baseline"));
  EXPECT_THAT(usage_error({"run", "--max-ratio", "1.1"}), HasSubstr("--max-ratio needs --mode perf"));
  for (const char* const bad : {"0", "-1", "nan", "inf", "10%", ""}) {
    EXPECT_THAT(usage_error({"run", "--mode", "perf", "--baseline", "x", "--max-ratio", bad}),
                HasSubstr(fmt::format("'{}' is not a number above 0", bad)));
  }
}

TEST(PerfMode, IsNeededByItsOptions) {
  EXPECT_THAT(usage_error({"run", "--iterations", "3"}), HasSubstr("--iterations needs --mode perf"));
  EXPECT_THAT(usage_error({"run", "--baseline", "x"}), HasSubstr("--baseline needs --mode perf"));
  EXPECT_THAT(usage_error({"run", "--mode", "perf", "--iterations", "0"}), HasSubstr("--iterations: at least 1"));
  EXPECT_THAT(usage_error({"run", "--mode", "fast"}), HasSubstr("fast"));
  EXPECT_THAT(usage_error({"run", "--mode", "perf", "--graph", "--device", "cpu"}),
              HasSubstr("--graph needs ranks on GPUs"));
}

TEST(SlotOptions, SayHowManyRanksWorkAtOnce) {
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "--device", "cpu"}).execution.config.slots, 0);
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "--device", "cpu", "--slots", "8"}).execution.config.slots, 8);
  EXPECT_THAT(usage_error({"run", "--device", "cuda", "--slots", "8"}), HasSubstr("--slots needs --device cpu"));
  EXPECT_THAT(usage_error({"run", "--device", "cpu", "--mode", "perf", "--slots", "8"}),
              HasSubstr("--mode perf lets one pool work at a time: it contradicts --slots"));
}

TEST(SlotOptions, KeepASpareOnCpuUnlessTheRunTakesTimes) {
  const auto spare = [](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"run", "--device", "cpu"};
    words.insert(words.end(), more.begin(), more.end());
    return parse_as<RunCommandOptions>(words).execution.config.spare;
  };
  EXPECT_TRUE(spare({}));
  EXPECT_TRUE(spare({"--spare", "on"}));
  EXPECT_FALSE(spare({"--spare", "off"}));
  EXPECT_FALSE(spare({"--mode", "perf"}));
}

TEST(SlotOptions, NameGpusOnlyForRanksOnGpus) {
  EXPECT_THAT(usage_error({"run", "--device", "cpu", "--gpus", "0"}), HasSubstr("--gpus needs --device cuda"));
  EXPECT_THAT(usage_error({"run", "--device", "cuda", "--gpus", "1,1"}),
              HasSubstr("'1,1' is no list of GPUs, each once; write 0-3,6"));
}

TEST(Options, AFolderOfTheWorkerCanBeToldInJson) {
  for (const char* const option : {"--dump", "--trace"}) {
    const std::string error = usage_error({"run", "--mode", "perf", option, "d\xff"});
    EXPECT_THAT(error, HasSubstr(std::string(option) + ": the path is not UTF-8"));
  }
}

TEST(ShortOptions, MeanWhatUsersOfPytestExpect) {
  const auto run = parse_as<RunCommandOptions>({"run", "-x", "-k", "p2p and not thd", "-v"});
  EXPECT_EQ(run.execution.config.max_failures, 1);
  EXPECT_EQ(run.selection.keywords, "p2p and not thd");
  EXPECT_TRUE(run.execution.verbose);
  EXPECT_FALSE(parse_as<RunCommandOptions>({"run", "-q"}).execution.progress);
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "-xqk", "thd"}).selection.keywords, "thd");
  EXPECT_EQ(parse_as<ListOptions>({"list", "-k", "thd"}).selection.keywords, "thd");
  EXPECT_EQ(parse_as<SubmitOptions>({"submit", "-", "-x"}).execution.config.max_failures, 1);
  EXPECT_TRUE(parse_as<ReportOptions>({"report", "e", "-v"}).execution.verbose);
}

TEST(Contradictions, AreRefused) {
  EXPECT_THAT(usage_error({"run", "-v", "-q"}), HasSubstr("--verbose and --no-progress contradict each other"));
  EXPECT_THAT(usage_error({"report", "e", "-v", "-q"}), HasSubstr("--verbose and --no-progress contradict each other"));
  EXPECT_THAT(usage_error({"run", "-x", "--max-fail", "3"}),
              HasSubstr("--fail-fast is --max-fail 1: it contradicts --max-fail 3 (see cp-pool run --help)"));
  EXPECT_THAT(usage_error({"submit", "-", "--isolate", "--pool-max-cases", "2"}),
              HasSubstr("--isolate is --pool-max-cases 1: it contradicts --pool-max-cases 2 (see cp-pool submit"));
  EXPECT_THAT(usage_error({"submit", "-", "--json", "-v"}), HasSubstr("--json and --verbose contradict each other"));
  EXPECT_THAT(usage_error({"submit", "-", "--json", "--timings"}), HasSubstr("--json and --timings contradict"));
  EXPECT_THAT(usage_error({"list", "--json", "--count"}), HasSubstr("--"));
}

TEST(Contradictions, AreNotWhatSaysTheSameTwice) {
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "-x", "--max-fail", "1"}).execution.config.max_failures, 1);
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "--isolate", "--pool-max-cases", "1"}).execution.config.pool_max_cases,
            1);
  EXPECT_FALSE(parse_as<SubmitOptions>({"submit", "-", "--json", "-q"}).execution.progress);
}

TEST(Adapters, HaveTheirOwnDefaultsAndAreKeptByARerun) {
  const auto run = parse_as<RunCommandOptions>({"run", "--adapter", "package.module:ring", "--python",
                                                "/venv/bin/python", "--bound-factor", "2.5"})
                       .execution;
  EXPECT_EQ(run.worker.adapter, "package.module:ring");
  EXPECT_EQ(run.worker.python, "/venv/bin/python");
  EXPECT_TRUE(run.config.expect_judged);
  EXPECT_TRUE(run.config.start_timeout_grows);
  EXPECT_EQ(run.config.bound_factor, 2.5);
  EXPECT_THAT(run.rerun_arguments,
              ElementsAre("--adapter", "package.module:ring", "--python", "/venv/bin/python", "--bound-factor", "2.5"));
  const auto told = parse_as<SubmitOptions>({"submit", "x", "--adapter", "a:b", "--start-timeout", "7s"}).execution;
  EXPECT_FALSE(told.config.start_timeout_grows);
  EXPECT_EQ(parse_as<ListOptions>({"list", "--adapter", "a:b"}).worker.adapter, "a:b");
  const auto plain = parse_as<RunCommandOptions>({"run", "--bound-factor", "1"}).execution;
  EXPECT_FALSE(plain.config.expect_judged || plain.config.start_timeout_grows || plain.config.bound_factor);
}

TEST(Adapters, ThatContradictOtherOptionsAreRefused) {
  EXPECT_THAT(usage_error({"run", "--adapter", "a:b", "--worker", "w"}),
              HasSubstr("--worker and --adapter contradict each other (see cp-pool run --help)"));
  EXPECT_THAT(usage_error({"doctor", "--adapter", "a:b", "--worker", "w"}), HasSubstr("contradict each other"));
  EXPECT_THAT(usage_error({"conformance", "--adapter", "a:b", "--worker", "w"}), HasSubstr("contradict each other"));
  EXPECT_THAT(usage_error({"list", "--python", "p"}), HasSubstr("--python needs --adapter"));
  EXPECT_THAT(usage_error({"run", "--fork", "on"}), HasSubstr("--fork on needs --adapter"));
  EXPECT_THAT(usage_error({"run", "--delays", "1"}), HasSubstr("--delays needs --adapter"));
  for (const char* const bad : {"", "x", "1:", "1:0", "1:-2", "1:1001", "1:2:3", "1.5"}) {
    EXPECT_THAT(usage_error({"run", "--adapter", "a:b", "--delays", bad}), HasSubstr("is not SEED[:MAX_MS]"));
  }
  EXPECT_THAT(usage_error({"run", "--adapter", "no_such_file.py"}), HasSubstr("there is no file no_such_file.py"));
  for (const char* const bad : {"0", "-1", "nan", "inf"}) {
    EXPECT_THAT(usage_error({"run", "--bound-factor", bad}), HasSubstr("is not a number above 0"));
  }
}

TEST(StartTimeouts, GrowWithRanksACore) {
  using std::chrono::seconds;
  RunConfig config;
  config.start_timeout = seconds{60};
  EXPECT_EQ(start_timeout_of(config, 100000), seconds{60});
  config.start_timeout_grows = true;
  const int cores = protocol::usable_cores();
  EXPECT_EQ(start_timeout_of(config, 4 * cores), seconds{240});
  EXPECT_EQ(start_timeout_of(config, cores), seconds{60});
  EXPECT_EQ(start_timeout_of(config, 1), seconds{60});
}

TEST(Rerun, KeepsTheWorkerAndQuotesWhatAShellWouldSplit) {
  ExecutionOptions options;
  options.rerun_arguments = {"--worker", "python3 'my worker.py'"};
  EXPECT_EQ(rerun_line({"cp-pool", "submit", "a case.json"}, options),
            R"(cp-pool submit 'a case.json' --worker 'python3 '\''my worker.py'\''')");
}

TEST(Rerun, OfAllFailuresReadsTheEventsFile) {
  ExecutionOptions options;
  EXPECT_EQ(rerun_of_failed({"cp-pool", "submit"}, options), std::nullopt);
  options.events = "/dev/null";
  EXPECT_EQ(rerun_of_failed({"cp-pool", "submit"}, options), std::nullopt);
  options.events = "new.jsonl";
  options.rerun_arguments = {"--device", "cuda"};
  EXPECT_EQ(rerun_of_failed({"cp-pool", "run", "--matrix", "my matrix.json"}, options),
            "cp-pool run --matrix 'my matrix.json' --rerun-failed new.jsonl --device cuda");
}

}  // namespace
}  // namespace cp_pool::test
