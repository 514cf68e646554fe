// `cp-pool config`, and runs that a file and a runner of tests configure.
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool {
namespace {

using test::Finished;
using test::ScopedVariable;
using test::Words;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ConfigProgram : public test::CommandLine {
 protected:
  void SetUp() override {
    test::CommandLine::SetUp();
    test::write_file(folder / "cp-pool.toml", "[profile.default]\ntimeout = \"20s\"\nmatrix = \"demo.json\"\n");
  }
  // In the folder.
  Finished here(const Words& words) {
    Words all = {"sh", "-c", "cd \"$0\" && exec \"$@\"", folder.path().string(), test::kProgram};
    all.insert(all.end(), words.begin(), words.end());
    return test::Program{std::move(all)}.wait();
  }
};

TEST_F(ConfigProgram, ShowsEveryValueAndItsPlace) {
  const ScopedVariable variable{"CP_POOL_OPT_GRACE", "2s"};
  const Finished done = here({"config", "--json", "--profile", "ci", "--size", "tiny"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json["profile"], "ci");
  EXPECT_EQ(json["file"], "cp-pool.toml");
  const auto expect = [&](const char* key, const nlohmann::json& value, const char* source, const char* place) {
    const auto& shown = json["options"].at(key);
    EXPECT_EQ(shown["value"], value) << key;
    EXPECT_EQ(shown["source"], source) << key;
    EXPECT_EQ(shown["place"], place) << key;
  };
  expect("timeout", "20s", "file", "cp-pool.toml:2");
  expect("matrix", {"demo.json"}, "file", "cp-pool.toml:3");
  expect("grace", "2s", "variable", "CP_POOL_OPT_GRACE");
  expect("size", "tiny", "option", "--size");
  expect("timings", true, "built-in", "built-in profile ci");
  expect("start-timeout", "60s", "default", "");
  expect("junit", nullptr, "default", "");
  EXPECT_FALSE(json["options"].contains("profile"));
  const Finished text = here({"config"});
  EXPECT_THAT(text.out, AllOf(StartsWith("profile default, cp-pool.toml\n"), HasSubstr("20s  (cp-pool.toml:2)\n")));
}

TEST_F(ConfigProgram, EveryOptionOfRunHasAKey) {
  const auto json = nlohmann::json::parse(here({"config", "--json"}).out);
  const std::string help = here({"run", "--help"}).out;
  std::size_t options = 0;
  for (std::size_t at = help.find("\n  -"); at != std::string::npos; at = help.find("\n  -", at + 1)) ++options;
  // Without --help, --config, --no-config and --profile.
  EXPECT_EQ(json["options"].size(), options - 4);
}

TEST_F(ConfigProgram, ABadFileEndsTheProgramAsABadCommandLineDoes) {
  test::write_file(folder / "cp-pool.toml", "[profile.ci]\nretrys = 2\n\ndevice = \"gpu\"\n");
  const Finished done = here({"run"});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(done.err, AllOf(StartsWith("cp-pool: error: cp-pool.toml:"), HasSubstr(": ")));
}

TEST_F(ConfigProgram, ARunIsThatOfItsFile) {
  const Finished done = here({"run", "--worker", test::kWorker, "--filter", "model=pass"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.last_line(), HasSubstr("1 expanded = 1 pass"));
}

TEST_F(ConfigProgram, ShardsOfARunnerOfTestsAreAllCasesAndItIsTold) {
  Words ids;
  for (const char* index : {"0", "1", "2"}) {
    const ScopedVariable total{"TEST_TOTAL_SHARDS", "3"};
    const ScopedVariable shard{"TEST_SHARD_INDEX", index};
    const ScopedVariable status{"TEST_SHARD_STATUS_FILE", (folder / "status").c_str()};
    const std::string xml = path(std::string{"report"} + index + ".xml");
    const ScopedVariable report{"XML_OUTPUT_FILE", xml.c_str()};
    const std::string events = path(std::string{"events"} + index);
    const Finished done =
        here({"run", "--worker", test::kWorker, "--filter", "model=pass", "model=pass_2", "--events", events});
    EXPECT_EQ(done.exit_code, 0) << done.err << "one shard has no case";
    EXPECT_TRUE(std::filesystem::exists(folder / "status"));
    std::filesystem::remove(folder / "status");
    if (!std::filesystem::exists(events)) continue;
    EXPECT_TRUE(std::filesystem::exists(xml));
    for (const auto& event : test::json_lines(test::read_file(events))) {
      if (event["type"] == "case_finished") ids.push_back(event["id"]);
    }
  }
  EXPECT_THAT(ids, ::testing::UnorderedElementsAre("demo/pass/p2p/cp1/bshd/fp32", "demo/pass_2/p2p/cp1/bshd/fp32"));
}

TEST_F(ConfigProgram, ShardsByTimesSayWhichTimes) {
  const std::string events = path("times.jsonl");
  ASSERT_EQ(
      here({"run", "--worker", test::kWorker, "--filter", "model=pass", "model=pass_2", "--events", events}).exit_code,
      0);
  std::string hash;
  for (const char* shard : {"1/2", "2/2"}) {
    const Finished done = here({"run", "--worker", test::kWorker, "--filter", "model=pass", "model=pass_2", "--shard",
                                shard, "--shard-times", events});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    const std::string first = done.out_lines().front();
    EXPECT_THAT(first, HasSubstr(std::string{"shard "} + shard + " by times "));
    const std::string of_shard = first.substr(first.find(" by times ") + 10, 16);
    EXPECT_TRUE(hash.empty() || hash == of_shard);
    hash = of_shard;
  }
}

TEST_F(ConfigProgram, ExpectedFailuresAndSkipsAreNoFailuresOfTheRun) {
  test::write_file(folder / "cp-pool.toml",
                   "[profile.default]\nmatrix = \"demo.json\"\nslots = 1\n"
                   "[[override]]\nfilter = \"model=fail\"\nxfail = {reason = \"issue 5\"}\n"
                   "[[override]]\nfilter = \"model=hang\"\nskip.reason = \"it hangs\"\n"
                   "[[override]]\nfilter = \"model=pass_2\"\nxfail = {reason = \"issue 6\"}\n");
  const Words words{"run",        "--worker", test::kWorker, "--filter", "model=fail", "model=pass*",
                    "model=hang", "--events", "e.jsonl",     "--junit",  "j.xml",      "--max-fail",
                    "1"};
  const Finished done = here(words);
  EXPECT_EQ(done.exit_code, 0) << done.out << done.err;
  EXPECT_THAT(done.last_line(), HasSubstr("4 expanded = 2 pass + 1 fail + 1 skip"));
  EXPECT_THAT(done.out, HasSubstr("1 failed as expected\n"));
  EXPECT_THAT(done.out, HasSubstr("passed, and was expected to fail: demo/pass_2/p2p/cp1/bshd/fp32: issue 6\n"));
  EXPECT_THAT(done.out, HasSubstr("1 skip: it hangs\n"));
  for (const auto& event : test::json_lines(test::read_file(folder / "e.jsonl"))) {
    if (event["type"] == "run_finished") {
      EXPECT_EQ(event["expected_failures"], 1);
      EXPECT_EQ(event["unexpected_passes"], 1);
    }
    if (event["type"] != "case_finished" || event["case"]["model"] != "fail") continue;
    EXPECT_EQ(event["outcome"], "fail");
    EXPECT_EQ(event["expected"], nlohmann::json({{"reason", "issue 5"}, {"strict", false}}));
  }
  EXPECT_EQ(here({"report", "e.jsonl"}).exit_code, 0) << "the report of the file says the same";
  EXPECT_EQ(here({"run", "--worker", test::kWorker, "--rerun-failed", "e.jsonl"}).exit_code, 4) << "nothing failed";
}

TEST_F(ConfigProgram, AStrictExpectedFailureHasToFail) {
  test::write_file(folder / "cp-pool.toml",
                   "[profile.default]\nmatrix = \"demo.json\"\n"
                   "[[override]]\nfilter = \"model=pass\"\nxfail = {reason = \"issue 5\", strict = true}\n");
  const Finished done = here({"run", "--worker", test::kWorker, "--filter", "model=pass", "--events", "e.jsonl"});
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(done.out, HasSubstr("passed, and was expected to fail: issue 5"));
  EXPECT_EQ(here({"report", "e.jsonl"}).exit_code, 100);
}

TEST_F(ConfigProgram, TheDeadlineOfAnOverrideIsThatOfItsCases) {
  test::write_file(folder / "cp-pool.toml",
                   "[profile.default]\nmatrix = \"demo.json\"\ngrace = \"100ms\"\n"
                   "[[override]]\nfilter = \"model=hang\"\ntimeout = \"300ms\"\n");
  const Finished done = here({"run", "--worker", test::kWorker, "--filter", "model=hang"});
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(done.last_line(), HasSubstr("1 timeout")) << done.out;
}

}  // namespace
}  // namespace cp_pool
