#include "driver/cli/commands/command_options.h"

#include <gmock/gmock.h>

#include "driver/cli/testing/parsed_command_line.h"

namespace cp_pool::test {
namespace {

using std::chrono::milliseconds;
using namespace ::testing;

TEST(RunCommandOptions, HaveTheDocumentedDefaults) {
  const auto run = parse_as<RunCommandOptions>({"run"});
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
  EXPECT_EQ(run.execution.worker.command, "");
  EXPECT_FALSE(run.execution.junit || run.execution.events || run.execution.config.run_dir);
  EXPECT_TRUE(run.execution.progress);
}

TEST(RunCommandOptions, AreReadFromTheCommandLine) {
  const auto run = parse_as<RunCommandOptions>(
      words_of("run --matrix te-flash te-fused --matrix mine.json --filter 'comm=p2p & !layout=thd' 'a/*' --size "
               "full --timeout 1500ms --start-timeout 2m --grace 0 --global-timeout 1h --max-consecutive-timeouts 5 "
               "--pool-max-cases 1 --worker 'python3 w.py' --junit j.xml --events e.jsonl --run-dir runs --dump "
               "dumps --rerun-failed before.jsonl --fail-fast --no-progress"));
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
  EXPECT_EQ(run.execution.worker.command, "python3 w.py");
  EXPECT_EQ(run.execution.junit, "j.xml");
  EXPECT_EQ(run.execution.events, "e.jsonl");
  EXPECT_EQ(run.execution.config.run_dir, "runs");
  EXPECT_EQ(run.execution.config.dump_dir, "dumps");
  EXPECT_EQ(run.execution.config.max_failures, 1);
  EXPECT_FALSE(run.execution.progress);
}

TEST(RunCommandOptions, ShorthandsSetWhatTheyStandFor) {
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "--max-fail", "3"}).execution.config.max_failures, 3);
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "--isolate"}).execution.config.pool_max_cases, 1);
  EXPECT_TRUE(parse_as<RunCommandOptions>({"run"}).execution.config.reference_cache);
  EXPECT_FALSE(parse_as<RunCommandOptions>({"run", "--no-reference-cache"}).execution.config.reference_cache);
  EXPECT_FALSE(parse_as<SubmitOptions>({"submit", "-", "--no-reference-cache"}).execution.config.reference_cache);
  const auto run = parse_as<RunCommandOptions>({"run", "--order", "shuffle:7", "--repeat", "3", "--timings"});
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

TEST(RunCommandOptions, TheLastOfSeveralValuesCounts) {
  const auto run = parse_as<RunCommandOptions>({"run", "--timeout", "1s", "--size", "full", "--timeout", "2s"});
  EXPECT_EQ(run.execution.config.timeout, milliseconds{2000});
  EXPECT_EQ(run.selection.size, "full");
}

TEST(RunCommandOptions, ARerunKeepsWhatChangesTheOutcomeOfACase) {
  EXPECT_THAT(parse_as<RunCommandOptions>({"run", "--junit", "x", "--grace", "1s"}).execution.rerun_arguments,
              IsEmpty());
  EXPECT_THAT(parse_as<RunCommandOptions>({"run", "--worker", "w x", "--timeout", "1500ms"}).execution.rerun_arguments,
              ElementsAre("--worker", "w x", "--timeout", "1500ms"));
  EXPECT_THAT(parse_as<RunCommandOptions>({"run", "--device", "cpu", "--start-timeout", "2m", "--deterministic"})
                  .execution.rerun_arguments,
              ElementsAre("--device", "cpu", "--start-timeout", "120s", "--deterministic"));
}

TEST(SubmitOptions, TakeACaseAndLookItUpInEveryMatrix) {
  const auto submit = parse_as<SubmitOptions>({"submit", "--json", "--matrix", "te-flash", "the/id"});
  EXPECT_EQ(submit.case_argument, "the/id");
  EXPECT_THAT(submit.selection.matrices, ElementsAre("te-flash"));
  EXPECT_TRUE(submit.json);
  EXPECT_THAT(parse_as<SubmitOptions>({"submit", "x"}).selection.matrices, IsEmpty());
  EXPECT_EQ(parse_as<SubmitOptions>({"submit", "-"}).case_argument, "-");
}

TEST(ListOptions, AreReadFromTheCommandLine) {
  const auto list = parse_as<ListOptions>({"list", "--matrix", "a", "b", "--filter", "x", "--size", "full", "--count"});
  EXPECT_THAT(list.selection.matrices, ElementsAre("a", "b"));
  EXPECT_THAT(list.selection.filters, ElementsAre("x"));
  EXPECT_EQ(list.selection.size, "full");
  EXPECT_TRUE(list.count);
  EXPECT_TRUE(parse_as<ListOptions>({"list", "--json"}).json);
}

TEST(SearchOptions, HaveTheDocumentedDefaults) {
  const auto search = parse_as<SearchOptions>({"search"});
  EXPECT_EQ(search.plan.time, milliseconds{60'000});
  EXPECT_EQ(search.cases, 0);
  EXPECT_TRUE(search.seed) << "one was drawn";
  EXPECT_FALSE(search.plan.keep_going);
  EXPECT_EQ(search.plan.shrink_time, milliseconds{120'000});
  EXPECT_EQ(search.found, "");
  EXPECT_THAT(search.edits, IsEmpty());
  EXPECT_THAT(search.filters, IsEmpty());
  EXPECT_EQ(search.execution.config.max_consecutive_timeouts, 0);
  EXPECT_EQ(search.execution.config.timeout, milliseconds{90'000});
}

TEST(SearchOptions, AreReadFromTheCommandLine) {
  const auto search = parse_as<SearchOptions>(
      words_of("search --time 10m --cases 50 --seed 18446744073709551615 --set comm=p2p --set cp_size=2 --filter "
               "'heads>2' --keep-going --shrink-time 5s --found off --max-consecutive-timeouts 2"));
  EXPECT_EQ(search.plan.time, milliseconds{600'000});
  EXPECT_EQ(search.cases, 50);
  EXPECT_EQ(search.seed, 18446744073709551615U);
  EXPECT_THAT(search.edits, ElementsAre("comm=p2p", "cp_size=2"));
  EXPECT_THAT(search.filters, ElementsAre("heads>2"));
  EXPECT_TRUE(search.plan.keep_going);
  EXPECT_EQ(search.plan.shrink_time, milliseconds{5000});
  EXPECT_EQ(search.found, "off");
  EXPECT_EQ(search.execution.config.max_consecutive_timeouts, 2);
}

TEST(SearchOptions, WithANumberOfCasesHaveNoTimeUnlessItIsGiven) {
  EXPECT_EQ(parse_as<SearchOptions>({"search", "--cases", "50"}).plan.time, milliseconds{0});
  EXPECT_EQ(parse_as<SearchOptions>({"search", "--cases", "0"}).plan.time, milliseconds{60'000});
  EXPECT_EQ(parse_as<SearchOptions>({"search", "--cases", "50", "--time", "2s"}).plan.time, milliseconds{2000});
}

TEST(SearchOptions, ThatMakeNoSenseAreRefused) {
  EXPECT_THAT(usage_error({"search", "--seed", "seven"}), HasSubstr("'seven' is no whole number of at most 64 bits"));
  EXPECT_THAT(usage_error({"search", "--seed", "-1"}), HasSubstr("is no whole number"));
  EXPECT_THAT(usage_error({"search", "--found", ""}), HasSubstr("the path is empty"));
  EXPECT_THAT(usage_error({"search", "--cases", "-3"}), HasSubstr("'-3' is negative"));
  EXPECT_THAT(usage_error({"search", "quick"}), HasSubstr("quick"));
}

}  // namespace
}  // namespace cp_pool::test
