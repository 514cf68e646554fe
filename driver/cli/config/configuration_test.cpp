// Tests the sources of an option's value when the command line leaves it out.
#include "driver/cli/config/configuration.h"

#include <list>

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/cli/commands/command_options.h"
#include "driver/cli/testing/parsed_command_line.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool::test {
namespace {

using std::chrono::seconds;
using namespace ::testing;

// Each test runs in a folder of its own. The variables that it sets are restored at the end.
class Configured : public ::testing::Test {
 protected:
  Configured() { std::filesystem::current_path(folder_.path()); }
  ~Configured() override {
    std::filesystem::current_path(before_);
    // In reverse, so that a variable that was set twice gets its first value back.
    while (!variables_.empty()) variables_.pop_back();
  }

  void write(const std::string& text) const { write_file(folder_.path() / "cp-pool.toml", text); }
  void set(const char* name, const char* value) { variables_.emplace_back(name, value); }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
  TemporaryFolder folder_;
  std::list<ScopedVariable> variables_;
};

TEST_F(Configured, OptionsHaveTheFirstOfCommandLineVariableProfileDefaultAndBuiltIn) {
  EXPECT_EQ(parse_as<RunCommandOptions>({"run"}).execution.config.timeout, seconds{90});
  write("[profile.default]\ntimeout = 10\n[profile.ci]\ntimeout = \"20s\"\n");
  EXPECT_EQ(parse_as<RunCommandOptions>({"run"}).execution.config.timeout, seconds{10});
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "--no-config"}).execution.config.timeout, seconds{90});
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "--profile", "ci"}).execution.config.timeout, seconds{20});
  set("CP_POOL_OPT_PROFILE", "ci");
  EXPECT_EQ(parse_as<RunCommandOptions>({"run"}).execution.config.timeout, seconds{20});
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "--profile", "default"}).execution.config.timeout, seconds{10});
  set("CP_POOL_OPT_TIMEOUT", "30s");
  EXPECT_EQ(parse_as<RunCommandOptions>({"run"}).execution.config.timeout, seconds{30});
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "--timeout", "40s"}).execution.config.timeout, seconds{40});
}

TEST_F(Configured, AProfileHasTheDefaultsOfTheFileAndThoseBuiltIn) {
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "--profile", "local"}).execution.config.max_failures, 10);
  EXPECT_TRUE(parse_as<RunCommandOptions>({"run", "--profile", "ci"}).execution.timings);
  EXPECT_FALSE(parse_as<RunCommandOptions>({"run"}).execution.timings);
  EXPECT_TRUE(parse_as<RunCommandOptions>({"run", "--profile", "ci"}).execution.config.triage);
  EXPECT_FALSE(parse_as<RunCommandOptions>({"run", "--profile", "ci", "--triage=false"}).execution.config.triage);
  write("[profile.default]\nmax-fail = 3\n[profile.nightly]\nrepeat = 2\n");
  EXPECT_EQ(parse_as<RunCommandOptions>({"run", "--profile", "local"}).execution.config.max_failures, 3);
  const auto nightly = parse_as<RunCommandOptions>({"run", "--profile", "nightly"});
  EXPECT_EQ(nightly.repeat, 2);
  EXPECT_EQ(nightly.execution.config.max_failures, 3);
  EXPECT_THAT(usage_error({"run", "--profile", "nightli"}),
              HasSubstr("--profile: there is no profile 'nightli'; did you mean 'nightly'?; there are ci, default"));
}

TEST_F(Configured, ListsAreReplacedAndFlagsCanBeTakenBack) {
  write("[profile.default]\nfilter = [\"a/*\", \"b/*\"]\nmatrix = \"te-flash\"\ntimings = true\n");
  const auto run = parse_as<RunCommandOptions>({"run"});
  EXPECT_THAT(run.selection.filters, ElementsAre("a/*", "b/*"));
  EXPECT_THAT(run.selection.matrices, ElementsAre("te-flash"));
  EXPECT_TRUE(run.execution.timings);
  const auto told = parse_as<RunCommandOptions>({"run", "--filter", "c/*", "--timings=false"});
  EXPECT_THAT(told.selection.filters, ElementsAre("c/*"));
  EXPECT_FALSE(told.execution.timings);
  set("CP_POOL_OPT_FILTER", "x & y\nz");
  set("CP_POOL_OPT_TIMINGS", "0");
  const auto variables = parse_as<RunCommandOptions>({"run"});
  EXPECT_THAT(variables.selection.filters, ElementsAre("x & y", "z"));
  EXPECT_FALSE(variables.execution.timings);
}

TEST_F(Configured, AKeySetsEveryOptionOfItsName) {
  write("[profile.default]\ntimeout = 7\nmatrix = [\"te-flash\"]\nsize = \"full\"\nadapter = \"a:b\"\n");
  EXPECT_EQ(parse_as<SearchOptions>({"search"}).execution.config.timeout, seconds{7});
  const auto list = parse_as<ListOptions>({"list"});
  EXPECT_THAT(list.selection.matrices, ElementsAre("te-flash"));
  EXPECT_EQ(list.worker.adapter, "") << "to ask an adapter takes seconds";
  const auto submit = parse_as<SubmitOptions>({"submit", "quick/x"});
  EXPECT_EQ(submit.execution.config.timeout, seconds{7});
  EXPECT_THAT(submit.selection.matrices, IsEmpty()) << "an ID is looked up in all";
}

TEST_F(Configured, TheCommandLineCountsMoreThanWhatItContradicts) {
  write("[profile.default]\nno-progress = true\nadapter = \"a:b\"\nfail-fast = true\nslots = 3\nwarmup = 2\n");
  const auto run = parse_as<RunCommandOptions>({"run", "-v", "--worker", "w", "--max-fail", "5"}).execution;
  EXPECT_TRUE(run.progress);
  EXPECT_TRUE(run.verbose);
  EXPECT_EQ(run.worker.adapter, "");
  EXPECT_EQ(run.config.max_failures, 5);
  EXPECT_EQ(run.config.slots, 3);
  const auto plain = parse_as<RunCommandOptions>({"run", "--mode", "perf"}).execution;
  EXPECT_EQ(plain.config.max_failures, 1);
  EXPECT_EQ(plain.worker.adapter, "a:b");
  EXPECT_EQ(plain.config.slots, 1);
  EXPECT_EQ(plain.config.perf->warmup, 2);
}

TEST_F(Configured, ARerunHasWhatChangesTheOutcome) {
  write("[profile.default]\ntimeout = \"7s\"\n");
  EXPECT_THAT(parse_as<RunCommandOptions>({"run"}).execution.rerun_arguments, ElementsAre("--timeout", "7s"));
}

TEST_F(Configured, PathsOfAFileStartInItsFolder) {
  write(
      "[profile.default]\njunit = \"out/report.xml\"\nmatrix = [\"mine.json\", \"quick\"]\nevents = \"/abs.jsonl\"\n"
      "worker = \"./build/worker --fast\"\n");
  std::filesystem::create_directories(folder() / "deep");
  std::filesystem::current_path(folder() / "deep");
  const auto run = parse_as<RunCommandOptions>({"run"});
  EXPECT_EQ(run.execution.junit, folder() / "out/report.xml");
  EXPECT_EQ(run.execution.events, "/abs.jsonl");
  EXPECT_THAT(run.selection.matrices, ElementsAre((folder() / "mine.json").string(), "quick"));
  EXPECT_EQ(run.execution.worker.command, (folder() / "./build/worker").string() + " --fast");
  std::filesystem::current_path(folder());
  EXPECT_EQ(parse_as<RunCommandOptions>({"run"}).execution.junit, "out/report.xml");
}

TEST_F(Configured, AnErrorNamesFileLineAndKey) {
  const auto error = [&](const std::string& line) {
    write("[profile.ci]\n" + line + "\n");
    return usage_error({"run"});  // the error is in a profile that is not used
  };
  EXPECT_EQ(error("timout = 3"), "cp-pool.toml:2: unknown key 'timout'; did you mean 'timeout'?");
  EXPECT_THAT(error("timeout = \"10x\""), HasSubstr("cp-pool.toml:2: timeout: '10x' is not a duration"));
  EXPECT_EQ(error("device = \"cda\""),
            "cp-pool.toml:2: device: 'cda' is none of auto, cpu, cuda; did you mean 'cuda'?");
  EXPECT_EQ(error("timings = 1"), "cp-pool.toml:2: timings: '1' is neither true nor false");
  EXPECT_EQ(error("timeout = [1]"), "cp-pool.toml:2: timeout: a list, where one value is wanted");
  EXPECT_THAT(error("max-fail = -1"), HasSubstr("cp-pool.toml:2: max-fail: '-1' is negative"));
  EXPECT_THAT(error("slots = 1.5"), HasSubstr("cp-pool.toml:2: slots: '1.5' is no whole number"));
  EXPECT_THAT(error("help = true"), HasSubstr("cp-pool.toml:2: unknown key 'help'"));
  write("[profile.default]\nverbose = true\nno-progress = true\n");
  EXPECT_THAT(usage_error({"run"}), HasSubstr("contradict each other"));
  EXPECT_THAT(usage_error({"run", "--config", "none.toml"}), HasSubstr("cannot read none.toml: No such file"));
}

TEST_F(Configured, AnErrorOfAVariableNamesIt) {
  set("CP_POOL_OPT_TIMEOUT", "soon");
  EXPECT_THAT(usage_error({"run"}), HasSubstr("CP_POOL_OPT_TIMEOUT: 'soon' is not a duration"));
  set("CP_POOL_OPT_TIMEOUT", "1s");
  set("CP_POOL_OPT_TIMOUT", "1s");
  EXPECT_THAT(usage_error({"run"}),
              HasSubstr("CP_POOL_OPT_TIMOUT: there is no such option; did you mean 'CP_POOL_OPT_TIMEOUT'?"));
}

TEST_F(Configured, AnErrorOfSeveralOptionsSaysWhereTheyAreSet) {
  write("[profile.default]\ngraph = true\n");
  EXPECT_THAT(usage_error({"run", "--mode", "perf", "--device", "cpu"}),
              HasSubstr("--graph needs ranks on GPUs (--device cuda) (--graph: cp-pool.toml:2)"));
}

TEST_F(Configured, ARunnerOfTestsChoosesTheShardTheReportAndAFilter) {
  set("TEST_TOTAL_SHARDS", "4");
  set("TEST_SHARD_INDEX", "1");
  set("XML_OUTPUT_FILE", "bazel.xml");
  set("TESTBRIDGE_TEST_ONLY", "p2p");
  const auto run = parse_as<RunCommandOptions>({"run", "-k", "thd"});
  EXPECT_EQ(run.selection.shard.index, 2U);
  EXPECT_EQ(run.selection.shard.count, 4U);
  EXPECT_TRUE(run.shard_by_runner);
  EXPECT_EQ(run.execution.junit, "bazel.xml");
  EXPECT_EQ(run.selection.keywords, "(thd) and (p2p)");
  const auto told = parse_as<RunCommandOptions>({"run", "--shard", "1/2", "--junit", "own.xml"});
  EXPECT_EQ(told.selection.shard.count, 2U);
  EXPECT_FALSE(told.shard_by_runner);
  EXPECT_EQ(told.execution.junit, "own.xml");
  EXPECT_EQ(parse_as<ListOptions>({"list"}).selection.shard.count, 1U) << "only run is a test program";
  set("TEST_SHARD_INDEX", "4");
  EXPECT_THAT(usage_error({"run"}), HasSubstr("TEST_SHARD_INDEX: 4 is not below 4 (TEST_TOTAL_SHARDS)"));
  set("TEST_SHARD_INDEX", nullptr);
  EXPECT_THAT(usage_error({"run"}), HasSubstr("TEST_TOTAL_SHARDS is 4, and TEST_SHARD_INDEX is not set"));
  set("TEST_TOTAL_SHARDS", nullptr);
  set("GTEST_TOTAL_SHARDS", "3");
  set("GTEST_SHARD_INDEX", "0");
  EXPECT_EQ(parse_as<RunCommandOptions>({"run"}).selection.shard.count, 3U);
}

}  // namespace
}  // namespace cp_pool::test
