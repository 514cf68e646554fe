// `cp-pool config`, and runs that are configured by a file and by a test runner.
#include <map>
#include <set>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

class ConfigProgram : public CommandLine {
 protected:
  void SetUp() override {
    CommandLine::SetUp();
    write_file(folder / "cp-pool.toml", "[profile.default]\ntimeout = \"20s\"\nmatrix = \"demo.json\"\n");
  }
  // Runs cp-pool in the folder of the test.
  Finished here(const Words& words) {
    return run_to_end(with({"sh", "-c", "cd \"$0\" && exec \"$@\"", folder.path().string(), kProgram}, words));
  }
  // Writes a file whose profile begins with the test's matrix.
  void configure(const std::string& more) {
    write_file(folder / "cp-pool.toml", "[profile.default]\nmatrix = \"demo.json\"\n" + more);
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

TEST_F(ConfigProgram, KnowsAFileWhateverItsName) {
  write_file(folder / "built-in.toml", "[profile.default]\ntimeout = \"20s\"\n");
  const Finished done = here({"config", "--json", "--config", "built-in.toml"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto shown = nlohmann::json::parse(done.out)["options"]["timeout"];
  EXPECT_EQ(shown["place"], "built-in.toml:2");
  EXPECT_EQ(shown["source"], "file");
}

TEST_F(ConfigProgram, EveryOptionOfRunHasAKey) {
  const auto json = nlohmann::json::parse(here({"config", "--json"}).out);
  const std::string help = here({"run", "--help"}).out;
  std::size_t options = 0;
  for (std::size_t at = help.find("\n  -"); at != std::string::npos; at = help.find("\n  -", at + 1)) ++options;
  // All options but --help, --config, --no-config and --profile are keys.
  EXPECT_EQ(json["options"].size(), options - 4);
}

TEST_F(ConfigProgram, ABadFileEndsTheProgramAsABadCommandLineDoes) {
  write_file(folder / "cp-pool.toml", "[profile.ci]\nretrys = 2\n\ndevice = \"gpu\"\n");
  EXPECT_THAT(here({"run"}), exits(2, err(StartsWith("cp-pool: error: cp-pool.toml:"), HasSubstr(": "))));
}

TEST_F(ConfigProgram, ARunIsThatOfItsFile) {
  EXPECT_THAT(here({"run", "--worker", kWorker, "--filter", "model=pass"}),
              exits(0, last_line(HasSubstr("1 expanded = 1 pass"))));
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
        here({"run", "--worker", kWorker, "--filter", "model=pass", "model=pass_2", "--events", events});
    EXPECT_EQ(done.exit_code, 0) << done.err << "one shard has no case";
    EXPECT_TRUE(std::filesystem::exists(folder / "status"));
    std::filesystem::remove(folder / "status");
    if (!std::filesystem::exists(events)) continue;
    EXPECT_TRUE(std::filesystem::exists(xml));
    for (const auto& event : events_in(events, "case_finished")) ids.push_back(event["id"]);
  }
  EXPECT_THAT(ids, ::testing::UnorderedElementsAre(kPass, "demo/pass_2/p2p/cp1/bshd/fp32"));
}

TEST_F(ConfigProgram, ShardsByTimesSayWhichTimes) {
  const std::string events = path("times.jsonl");
  ASSERT_EQ(here({"run", "--worker", kWorker, "--filter", "model=pass", "model=pass_2", "--events", events}).exit_code,
            0);
  std::string hash;
  for (const char* shard : {"1/2", "2/2"}) {
    const Finished done = here({"run", "--worker", kWorker, "--filter", "model=pass", "model=pass_2", "--shard", shard,
                                "--shard-times", events});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    const std::string first = done.out_lines().front();
    EXPECT_THAT(first, HasSubstr(std::string{"shard "} + shard + " by times "));
    const std::string of_shard = first.substr(first.find(" by times ") + 10, 16);
    EXPECT_TRUE(hash.empty() || hash == of_shard);
    hash = of_shard;
  }
}

TEST_F(ConfigProgram, ExpectedFailuresAndSkipsAreNoFailuresOfTheRun) {
  configure(
      "slots = 1\n"
      "[[override]]\nfilter = \"model=fail\"\nxfail = \"issue 5\"\n"
      "[[override]]\nfilter = \"model=hang\"\nskip = \"it hangs\"\n"
      "[[override]]\nfilter = \"model=pass_2\"\nxfail = \"issue 6\"\n");
  EXPECT_THAT(here({"run", "--worker", kWorker, "--filter", "model=fail", "model=pass*", "model=hang", "--events",
                    "e.jsonl", "--html", "h.html", "--max-fail", "1", "--no-skip", "--annotate", "github"}),
              exits(0, last_line(HasSubstr("4 expanded = 2 pass + 1 fail + 1 skip (1 xfail, 1 xpass), ")),
                    err(HasSubstr("::warning title=xpass%3A demo/pass_2"), Not(HasSubstr("::error")))));
  EXPECT_THAT(read_file(folder / "h.html"), Not(HasSubstr(">Failures<")));
  const auto end = events_in(folder / "e.jsonl", "run_finished").at(0);
  EXPECT_EQ(end["expected_failures"], 1);
  EXPECT_EQ(end["unexpected_passes"], 1);
  EXPECT_EQ(end["expected_skips"], 1);
  for (const auto& event : events_in(folder / "e.jsonl", "case_finished")) {
    if (event["case"]["model"] == "fail") {
      EXPECT_EQ(event["outcome"], "fail");
      EXPECT_EQ(event["expected"], nlohmann::json({{"outcome", "fail"}, {"reason", "issue 5"}}));
    }
    if (event["case"]["model"] == "hang") {
      EXPECT_EQ(event["outcome"], "skip");
      EXPECT_EQ(event["reason"], "it hangs");
      EXPECT_EQ(event["expected"], nlohmann::json({{"outcome", "skip"}, {"reason", "it hangs"}}));
      EXPECT_EQ(event["attempts"], 0);
    }
  }
  EXPECT_EQ(here({"report", "e.jsonl"}).exit_code, 0) << "the report of the file says the same";
  EXPECT_EQ(here({"run", "--worker", kWorker, "--rerun-failed", "e.jsonl"}).exit_code, 4) << "nothing failed";
}

TEST_F(ConfigProgram, AStrictExpectedFailureHasToFail) {
  configure("[[override]]\nfilter = \"model=pass\"\nxfail = \"issue 5\"\nxfail-strict = true\n");
  EXPECT_THAT(here({"run", "--worker", kWorker, "--filter", "model=pass", "--events", "e.jsonl"}),
              exits(100, out(HasSubstr("passed, and was expected to fail: issue 5"))));
  EXPECT_EQ(here({"report", "e.jsonl"}).exit_code, 100);
}

TEST_F(ConfigProgram, TheDeadlineOfAnOverrideIsThatOfItsCases) {
  configure(
      "grace = \"100ms\"\ntimeout = \"1h\"\n"
      "[[override]]\nfilter = \"model=hang\"\ntimeout = \"300ms\"\n");
  EXPECT_THAT(here({"run", "--worker", kWorker, "--filter", "model=hang"}),
              exits(100, last_line(HasSubstr("1 timeout")), out(HasSubstr("rerun: "), Not(HasSubstr("--timeout 1h")))))
      << "it would count more";
}

TEST_F(ConfigProgram, RetriesAreThoseOfTheCase) {
  configure(
      "slots = 1\n"
      "[[override]]\nfilter = \"model=error\"\nretries = 2\n"
      "[[override]]\nfilter = \"model=crash\"\nretries = 1\nxfail = \"it crashes\"\n");
  const Words words{"run", "--worker", kWorker, "--filter", "model=error", "model=crash"};
  const auto tries_of = [&](const Words& more) {
    EXPECT_EQ(here(with(with(words, {"--events", "e.jsonl"}), more)).exit_code, 100);
    std::map<std::string, int> tries;
    for (const auto& event : events_in(folder / "e.jsonl", "case_tried")) ++tries[event["case"]["model"]];
    return tries;
  };
  EXPECT_EQ(tries_of({}), (std::map<std::string, int>{{"error", 2}})) << "what is expected to fail is not tried again";
  EXPECT_EQ(tries_of({"--retries", "1"}), (std::map<std::string, int>{{"error", 1}})) << "the command line counts more";
}

TEST_F(ConfigProgram, CasesHaveRanksWithTheirOwnEnvironmentAndWorker) {
  configure(
      "slots = 1\nspare = \"off\"\n"
      "[[override]]\nfilter = \"model=pass*\"\nenvironment = {CP_POOL_TEST_LEAK = 1, MINE = \"a b\"}\n"
      "[[override]]\nfilter = \"model=skip\"\nworker = \"sh -c 'echo own >> said; exec " +
      std::string{"python3 " CP_POOL_SCRIPTED_WORKER} + "'\"\n");
  const std::string worker =
      std::string{"sh -c 'echo \"mine: $MINE\" >> said; exec python3 "} + CP_POOL_SCRIPTED_WORKER + "'";
  write_file(folder / "more.toml",
             read_file(folder / "cp-pool.toml") + "[profile.own]\nworker = '''" + worker + "'''\n");
  const Words words{"run",         "--config",   "more.toml",  "--profile",  "own", "--filter",
                    "model=pass*", "model=skip", "model=fail", "--capsules", "c"};
  const Finished done = here(words);
  EXPECT_THAT(done, exits(100, last_line(HasSubstr("= 1 pass + 2 fail + 1 skip, "))))
      << "pass_2 fails after pass, with the variable";
  const std::string said = read_file(folder / "said");
  EXPECT_THAT(said, AllOf(HasSubstr("mine: a b\n"), HasSubstr("mine: \n"), HasSubstr("own\n")));
  EXPECT_EQ(std::ranges::count(said, '\n'), 3) << "cases with the same ranks share a pool: " << said;
  EXPECT_THAT(done.out, HasSubstr("--config more.toml --profile own"));
  EXPECT_THAT(done.out, Not(HasSubstr("--worker")));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "c")) {
    if (entry.path().filename() != "capsule.json") continue;
    const std::string capsule = read_file(entry.path());
    EXPECT_EQ(capsule.find("MINE=a b") != std::string::npos, entry.path().string().find("pass_2") != std::string::npos);
  }
}

// The package cp_pool that the interpreter finds is a stand-in (testing/adapter_package).
TEST_F(ConfigProgram, CasesMayHaveAnAdapterOfTheirOwn) {
  const ScopedVariable packages{"PYTHONPATH", CP_POOL_ADAPTER_PACKAGE};
  write_file(folder / "mine.py", R"({"skips":[]})");
  configure("slots = 1\nspare = \"off\"\nworker = \"" + kWorker +
            "\"\n[[override]]\nfilter = \"model=pass_2\"\nadapter = \"mine.py\"\n");
  const Finished done =
      here({"run", "--filter", "model=pass", "model=pass_2", "--events", "e.jsonl", "--run-dir", "logs"});
  EXPECT_THAT(done, exits(0, last_line(HasSubstr("2 expanded = 2 pass"))));
  std::map<std::string, std::string> pools;
  std::map<std::string, nlohmann::json> implementations;
  for (const auto& event : events_in(folder / "e.jsonl", "case_finished")) {
    pools[event["case"]["model"]] = event["pool"].dump();
    implementations[event["case"]["model"]] = event.value("implementation", "");
  }
  const std::string adapter = "adapter " + std::filesystem::canonical(folder / "mine.py").string();
  EXPECT_EQ(events_in(folder / "e.jsonl", "run_started").at(0)["implementations"],
            nlohmann::json({"worker python3 " CP_POOL_SCRIPTED_WORKER, adapter}));
  EXPECT_EQ(implementations["pass"], "");
  EXPECT_EQ(implementations["pass_2"], adapter);
  EXPECT_TRUE(events_in(folder / "e.jsonl", "fork_server").back()["ready"].get<bool>())
      << "ranks of an adapter are forked";
  EXPECT_NE(pools["pass"], pools["pass_2"]);
  std::string said;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "logs")) {
    if (entry.path().filename() == "rank0.stderr.log") said += read_file(entry.path());
  }
  EXPECT_THAT(said, AllOf(HasSubstr("forked\nstderr of demo/pass_2/"), HasSubstr("stderr of demo/pass/")));
}

TEST_F(ConfigProgram, ACaseMayHoldMoreSlotsThanRanks) {
  configure(
      "slots = 3\nspare = \"off\"\n"
      "[[override]]\nfilter = \"model=pass\"\nslots = 2\n"
      "[[override]]\nfilter = \"model=pass_2\"\nslots = 99\n");
  const Finished done =
      here({"run", "--worker", kWorker, "--filter", "model=pass*", "model=skip", "--events", "e.jsonl"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  std::multiset<std::size_t> held;
  for (const auto& event : events_in(folder / "e.jsonl", "pool_spawned")) held.insert(event["slots"].size());
  EXPECT_EQ(held, (std::multiset<std::size_t>{1, 2, 3}));
}

TEST_F(ConfigProgram, OverridesOfAProfileCountThereAndMore) {
  configure(
      "[[profile.nightly.override]]\nfilter = \"model=fail\"\nxfail = false\n"
      "[[override]]\nfilter = \"model=fail\"\nxfail = \"issue 5\"\n");
  const Words words{"run", "--worker", kWorker, "--filter", "model=fail"};
  EXPECT_EQ(here(words).exit_code, 0);
  EXPECT_EQ(here(with(words, {"--profile", "nightly"})).exit_code, 100);
  EXPECT_EQ(here(with(words, {"--no-config", "--matrix", "demo.json"})).exit_code, 100);
}

TEST_F(ConfigProgram, ShowsOverridesAndTheirPlaces) {
  write_file(folder / "cp-pool.toml",
             "[[profile.ci.override]]\nfilter = [\"model=a\", \"model=b\"]\nretries = 3\n"
             "[[override]]\nfilter = \"model=fail\"\nxfail = \"issue 5\"\nxfail-strict = true\n");
  const auto json = nlohmann::json::parse(here({"config", "--json", "--profile", "ci"}).out);
  ASSERT_EQ(json["overrides"].size(), 2U);
  EXPECT_EQ(json["overrides"][0]["profile"], nullptr);
  EXPECT_EQ(json["overrides"][0]["place"], "cp-pool.toml:4");
  EXPECT_EQ(json["overrides"][0]["keys"]["xfail"], nlohmann::json({{"value", "issue 5"}, {"place", "cp-pool.toml:6"}}));
  EXPECT_EQ(json["overrides"][0]["keys"]["xfail-strict"]["value"], true);
  EXPECT_EQ(json["overrides"][1]["profile"], "ci");
  EXPECT_EQ(json["overrides"][1]["keys"]["filter"]["value"], nlohmann::json({"model=a", "model=b"}));
  const Finished text = here({"config", "--profile", "ci"});
  EXPECT_THAT(text.out, AllOf(HasSubstr("\noverride  (cp-pool.toml:4)\n"), HasSubstr("issue 5  (cp-pool.toml:6)\n"),
                              HasSubstr("\noverride of profile ci  (cp-pool.toml:1)\n")));
  EXPECT_EQ(here({"config"}).out.find("profile ci"), std::string::npos);
}

TEST_F(ConfigProgram, AListMarksWhatAnOverrideSkipsOrExpectsToFail) {
  configure(
      "[[override]]\nfilter = [\"model=fail\", \"model=error\"]\nxfail = \"issue 5\"\nxfail-strict = true\n"
      "[[override]]\nfilter = \"model=hang\"\nskip = \"it hangs\"\n"
      "[[override]]\nfilter = \"model=error\"\nxfail = false\n");
  const Words words{"list", "--filter", "model=fail", "model=hang", "model=error", "model=pass"};
  EXPECT_THAT(
      here(words).out_lines(),
      ::testing::UnorderedElementsAre(kPass, "demo/fail/p2p/cp1/bshd/fp32  xfail: issue 5",
                                      "demo/hang/p2p/cp1/bshd/fp32  skip: it hangs", "demo/error/p2p/cp1/bshd/fp32"));
  std::map<std::string, nlohmann::json> expected;
  for (const auto& listed : nlohmann::json::parse(here(with(words, {"--json"})).out)) {
    expected[listed["case"]["model"]] = listed.value("expected", nlohmann::json());
  }
  EXPECT_EQ(expected["fail"], nlohmann::json({{"outcome", "fail"}, {"reason", "issue 5"}, {"strict", true}}));
  EXPECT_EQ(expected["hang"], nlohmann::json({{"outcome", "skip"}, {"reason", "it hangs"}}));
  EXPECT_TRUE(expected["pass"].is_null());
  EXPECT_TRUE(expected["error"].is_null());
  EXPECT_EQ(here(with(words, {"--no-config", "--matrix", "demo.json"})).out.find("xfail"), std::string::npos);
}

TEST_F(ConfigProgram, ABadOverrideIsRefusedWhicheverProfileIsAskedFor) {
  write_file(folder / "cp-pool.toml", "[[profile.ci.override]]\nfilter = \"model=fail\"\nretrys = 3\n");
  for (const char* command : {"run", "config", "list"}) {
    EXPECT_THAT(here({command}), refuses(2, "cp-pool.toml:3: override: unknown key 'retrys'; did you mean 'retries'?"));
  }
}

}  // namespace
}  // namespace cp_pool::test
