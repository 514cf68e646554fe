#include "driver/cli/options.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/cli/exit_code.h"

namespace cp_pool {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CommandLine parse(std::vector<const char*> words) {
  words.insert(words.begin(), "cp-pool");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

template <typename Options>
Options parse_as(std::vector<const char*> words) {
  return std::get<Options>(parse(std::move(words)));
}

std::string usage_error(std::vector<const char*> words) {
  try {
    parse(std::move(words));
  } catch (const CommandError& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    return e.what();
  }
  return "no error";
}

TEST(RunOptions, HaveTheDocumentedDefaults) {
  const auto run = parse_as<RunOptions>({"run"});
  EXPECT_THAT(run.selection.matrices, ElementsAre("quick"));
  EXPECT_THAT(run.selection.filters, IsEmpty());
  EXPECT_EQ(run.selection.size, "small");
  EXPECT_EQ(run.execution.config.device, "cpu");
  EXPECT_EQ(run.execution.config.timeout, milliseconds{90000});
  EXPECT_EQ(run.execution.config.start_timeout, milliseconds{60000});
  EXPECT_EQ(run.execution.config.grace, milliseconds{5000});
  EXPECT_EQ(run.execution.config.global_timeout, milliseconds{0});
  EXPECT_EQ(run.execution.config.max_consecutive_timeouts, 3);
  EXPECT_EQ(run.execution.config.pool_max_cases, 0);
  EXPECT_EQ(run.execution.config.max_failures, 0);
  EXPECT_EQ(run.execution.worker, "");
  EXPECT_FALSE(run.execution.junit || run.execution.events || run.execution.config.run_dir);
  EXPECT_TRUE(run.execution.progress);
}

TEST(RunOptions, AreReadFromTheCommandLine) {
  const auto run = parse_as<RunOptions>({"run",
                                         "--matrix",
                                         "te-flash",
                                         "te-fused",
                                         "--matrix",
                                         "mine.json",
                                         "--filter",
                                         "comm=p2p & !layout=thd",
                                         "a/*",
                                         "--size",
                                         "full",
                                         "--timeout",
                                         "1500ms",
                                         "--start-timeout",
                                         "2m",
                                         "--grace",
                                         "0",
                                         "--global-timeout",
                                         "1h",
                                         "--max-consecutive-timeouts",
                                         "5",
                                         "--pool-max-cases",
                                         "1",
                                         "--worker",
                                         "python3 w.py",
                                         "--junit",
                                         "j.xml",
                                         "--events",
                                         "e.jsonl",
                                         "--run-dir",
                                         "runs",
                                         "--dump",
                                         "dumps",
                                         "--rerun-failed",
                                         "before.jsonl",
                                         "--fail-fast",
                                         "--no-progress"});
  EXPECT_EQ(run.rerun_failed, "before.jsonl");
  EXPECT_THAT(run.selection.matrices, ElementsAre("te-flash", "te-fused", "mine.json"));
  EXPECT_THAT(run.selection.filters, ElementsAre("comm=p2p & !layout=thd", "a/*"));
  EXPECT_EQ(run.selection.size, "full");
  EXPECT_EQ(run.execution.config.timeout, milliseconds{1500});
  EXPECT_EQ(run.execution.config.start_timeout, milliseconds{120000});
  EXPECT_EQ(run.execution.config.grace, milliseconds{0});
  EXPECT_EQ(run.execution.config.global_timeout, milliseconds{3600000});
  EXPECT_EQ(run.execution.config.max_consecutive_timeouts, 5);
  EXPECT_EQ(run.execution.config.pool_max_cases, 1);
  EXPECT_EQ(run.execution.worker, "python3 w.py");
  EXPECT_EQ(run.execution.junit, "j.xml");
  EXPECT_EQ(run.execution.events, "e.jsonl");
  EXPECT_EQ(run.execution.config.run_dir, "runs");
  EXPECT_EQ(run.execution.config.dump_dir, "dumps");
  EXPECT_EQ(run.execution.config.max_failures, 1);
  EXPECT_FALSE(run.execution.progress);
}

TEST(RunOptions, ShorthandsSetWhatTheyStandFor) {
  EXPECT_EQ(parse_as<RunOptions>({"run", "--max-fail", "3"}).execution.config.max_failures, 3);
  EXPECT_EQ(parse_as<RunOptions>({"run", "--isolate"}).execution.config.pool_max_cases, 1);
  EXPECT_TRUE(parse_as<RunOptions>({"run"}).execution.config.reference_cache);
  EXPECT_FALSE(parse_as<RunOptions>({"run", "--no-reference-cache"}).execution.config.reference_cache);
  EXPECT_FALSE(parse_as<SubmitOptions>({"submit", "-", "--no-reference-cache"}).execution.config.reference_cache);
  const auto run = parse_as<RunOptions>({"run", "--order", "shuffle:7", "--repeat", "3", "--timings"});
  EXPECT_EQ(run.order.kind, Order::Kind::shuffle);
  EXPECT_EQ(run.order.seed, 7U);
  EXPECT_EQ(run.repeat, 3);
  EXPECT_TRUE(run.execution.timings);
  EXPECT_THAT(usage_error({"run", "--order", "random"}), HasSubstr("'random' is none of listed, reverse"));
  for (const char* zero : {"0", "00"}) {
    EXPECT_THAT(usage_error({"run", "--repeat", zero}), HasSubstr("is less than 1"));
  }
  for (const char* none : {"", "0x0", "many", "1.5"}) {
    EXPECT_THAT(usage_error({"run", "--repeat", none}), HasSubstr(std::string{"'"} + none + "' is no whole number"));
    EXPECT_THAT(usage_error({"run", "--max-fail", none}), HasSubstr(std::string{"'"} + none + "' is no whole number"));
  }
}

TEST(RunOptions, TheLastOfSeveralValuesCounts) {
  const auto run = parse_as<RunOptions>({"run", "--timeout", "1s", "--size", "full", "--timeout", "2s"});
  EXPECT_EQ(run.execution.config.timeout, milliseconds{2000});
  EXPECT_EQ(run.selection.size, "full");
}

TEST(RunOptions, ARerunKeepsWhatChangesTheOutcomeOfACase) {
  EXPECT_THAT(parse_as<RunOptions>({"run", "--junit", "x", "--grace", "1s"}).execution.rerun_arguments, IsEmpty());
  EXPECT_THAT(parse_as<RunOptions>({"run", "--worker", "w x", "--timeout", "1500ms"}).execution.rerun_arguments,
              ElementsAre("--worker", "w x", "--timeout", "1500ms"));
  EXPECT_THAT(parse_as<RunOptions>({"run", "--device", "cpu", "--start-timeout", "2m", "--deterministic"})
                  .execution.rerun_arguments,
              ElementsAre("--device", "cpu", "--start-timeout", "120s", "--deterministic"));
}

TEST(PerfMode, HasItsOptionsAndOnePoolAtATime) {
  EXPECT_FALSE(parse_as<RunOptions>({"run"}).execution.config.perf);
  EXPECT_FALSE(parse_as<RunOptions>({"run", "--mode", "verify"}).execution.config.perf);
  const auto plain = parse_as<RunOptions>({"run", "--mode", "perf"}).execution;
  ASSERT_TRUE(plain.config.perf);
  EXPECT_EQ(plain.config.perf->warmup, 5);
  EXPECT_EQ(plain.config.perf->iterations, 20);
  EXPECT_EQ(plain.config.max_busy_ranks, 1);
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
      parse_as<RunOptions>({"run", "--mode", "perf", "--baseline", "before.jsonl", "--max-ratio", "1.10"}).execution;
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

TEST(Options, AFolderOfTheWorkerCanBeToldInJson) {
  for (const char* const option : {"--dump", "--trace"}) {
    const std::string error = usage_error({"run", "--mode", "perf", option, "d\xff"});
    EXPECT_THAT(error, HasSubstr(std::string(option) + ": the path is not UTF-8"));
  }
}

TEST(Options, WhereAnIdIsLookedUpIsNotForAFileOrAStream) {
  EXPECT_THAT(usage_error({"submit", "a.json", "--matrix", "quick"}),
              HasSubstr("--matrix is for the ID of a case, and a.json is a file (see cp-pool submit --help)"));
  EXPECT_THAT(usage_error({"submit", "-", "--size", "full"}),
              HasSubstr("--size is for the ID of a case, and - is a stream"));
  EXPECT_THAT(usage_error({"explain", "a.json", "--size", "full"}), HasSubstr("(see cp-pool explain --help)"));
}

TEST(SubmitOptions, TakeACaseAndLookItUpInEveryMatrix) {
  const auto submit = parse_as<SubmitOptions>({"submit", "--json", "--matrix", "te-flash", "the/id"});
  EXPECT_EQ(submit.case_argument, "the/id");
  EXPECT_THAT(submit.selection.matrices, ElementsAre("te-flash"));
  EXPECT_TRUE(submit.json);
  EXPECT_THAT(parse_as<SubmitOptions>({"submit", "x"}).selection.matrices, IsEmpty());
  EXPECT_EQ(parse_as<SubmitOptions>({"submit", "-"}).case_argument, "-");
}

TEST(ShardOption, IsOneOfRunAndList) {
  EXPECT_EQ(parse_as<RunOptions>({"run"}).selection.shard.count, 1U);
  EXPECT_EQ(parse_as<RunOptions>({"run", "--shard", "2/4"}).selection.shard.index, 2U);
  EXPECT_EQ(parse_as<ListOptions>({"list", "--shard", "4/5"}).selection.shard.count, 5U);
  EXPECT_THAT(usage_error({"run", "--shard", "5/4"}), HasSubstr("'5/4' is none of 1/N, 2/N .. N/N"));
}

TEST(ListOptions, AreReadFromTheCommandLine) {
  const auto list = parse_as<ListOptions>({"list", "--matrix", "a", "b", "--filter", "x", "--size", "full", "--count"});
  EXPECT_THAT(list.selection.matrices, ElementsAre("a", "b"));
  EXPECT_THAT(list.selection.filters, ElementsAre("x"));
  EXPECT_EQ(list.selection.size, "full");
  EXPECT_TRUE(list.count);
  EXPECT_TRUE(parse_as<ListOptions>({"list", "--json"}).json);
}

TEST(CommandLineErrors, AreOneLineThatNamesTheWord) {
  EXPECT_THAT(usage_error({}), HasSubstr("subcommand"));
  EXPECT_THAT(usage_error({"fly"}), HasSubstr("fly"));
  EXPECT_THAT(usage_error({"run", "--speed"}), HasSubstr("--speed"));
  EXPECT_THAT(usage_error({"run", "--timeout", "soon"}), HasSubstr("'soon' is not a duration"));
  EXPECT_THAT(usage_error({"run", "--timeout", "0"}), HasSubstr("'0' is too short"));
  EXPECT_THAT(usage_error({"run", "--pool-max-cases", "-1"}), HasSubstr("--pool-max-cases"));
  EXPECT_THAT(usage_error({"run", "--timeout", "1000000h"}), HasSubstr("of at most 1000 hours"));
  EXPECT_THAT(usage_error({"run", "--repeat", "2147483648"}), HasSubstr("'2147483648' is more than 2147483647"));
  EXPECT_THAT(usage_error({"run", "--max-fail", "99999999999999999999"}), HasSubstr("is more than 2147483647"));
  EXPECT_EQ(parse_as<RunOptions>({"run", "--max-fail", "2147483647"}).execution.config.max_failures, 2147483647);
  EXPECT_THAT(usage_error({"run", "--device", "abacus"}), HasSubstr("abacus"));
  EXPECT_THAT(usage_error({"run", "--worker", "'open"}), HasSubstr("''open' is not a command line"));
  EXPECT_THAT(usage_error({"run", "--junit"}), HasSubstr("--junit"));
  for (const char* option : {"--junit", "--events", "--html", "--run-dir", "--dump", "--rerun-failed"}) {
    EXPECT_THAT(usage_error({"run", option, "-"}), HasSubstr("'-' stands for no stream here"));
  }
  EXPECT_EQ(parse_as<RunOptions>({"run", "--events", "./-"}).execution.events, "./-");
  EXPECT_THAT(usage_error({"submit"}), HasSubstr("CASE"));
  EXPECT_THAT(usage_error({"list", "--json", "--count"}), HasSubstr("--"));
  EXPECT_EQ(usage_error({"run", "--timeout", "soon"}).find('\n'), std::string::npos);
  EXPECT_THAT(usage_error({"run", "--timeout", "soon"}), HasSubstr("(see cp-pool run --help)"));
}

TEST(Help, NamesEveryOptionExamplesAndExitCodes) {
  const std::string run = parse_as<PrintText>({"run", "--help"}).text;
  for (const char* part : {"--matrix",         "--filter",
                           "--rerun-failed",   "--size",
                           "--device",         "--timeout",
                           "--start-timeout",  "--grace",
                           "--global-timeout", "--max-consecutive-timeouts",
                           "--pool-max-cases", "--worker",
                           "--junit",          "--events",
                           "--html",           "--run-dir",
                           "--dump",           "--no-reference-cache",
                           "--fail-fast",      "--no-progress",
                           "Examples:",        "130  "}) {
    EXPECT_THAT(run, HasSubstr(part));
  }
  const std::string all = parse_as<PrintText>({"--help"}).text;
  for (const char* part : {"run", "submit", "list", "--version", "Examples:", "Exit codes"}) {
    EXPECT_THAT(all, HasSubstr(part));
  }
}

TEST(ManPage, HoldsWhatTheHelpHolds) {
  const std::string page = parse_as<PrintText>({"--man"}).text;
  EXPECT_THAT(page, ::testing::StartsWith(".TH CP\\-POOL 1 "));
  for (const char* part : {".SH CP\\-POOL run\n", ".SH CP\\-POOL submit\n", "\\fB\\-\\-max\\-fail\\fR \\fIN\\fR",
                           "(default: 90s)", "\\fBCASE\\fR", ".SH EXIT STATUS\n", "130  interrupted"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
}

TEST(Version, IsOneLine) {
  EXPECT_EQ(parse_as<PrintText>({"--version"}).text, "cp-pool " CP_POOL_VERSION "\n");
}

}  // namespace
}  // namespace cp_pool
