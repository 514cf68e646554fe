// --adapter with the real program and the real fork server. The package cp_pool that the interpreter finds is a
// stand-in (testing/adapter_package), whose adapters are files of JSON.
#include <chrono>

#include <fmt/format.h>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

class AdapterProgram : public CommandLine {
 protected:
  void SetUp() override {
    CommandLine::SetUp();
    adapter_is(R"({"skips":["skip","hang"]})");
  }
  void adapter_is(const std::string& declared) { write_file(folder / "mine.py", declared); }

  // Replaces the matrix by one of these world sizes and models.
  void sizes_are(const std::string& sizes, const std::string& models) {
    write_file(folder / "demo.json",
               fmt::format(R"({{"suite":"demo","defaults":{{"comm":"p2p","layout":"bshd","dtype":"fp32",{}}},)"
                           R"("axes":{{"cp_size":{}}},"models":{{{}}},"sizes":{{"small":{{}}}}}})",
                           kSizes, sizes, models));
  }

  Finished run_adapter(const std::string& filter, const Words& more = {}) {
    return call(with({"run", "--matrix", path("demo.json"), "--filter", filter, "--adapter", path("mine.py"),
                      "--python", "python3", "--events", path("e"), "--timeout", "20s", "--run-dir", path("logs")},
                     more));
  }
  // Returns the first line that rank 0 wrote to stderr: "forked" or "executed".
  [[nodiscard]] std::string first_words() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "logs")) {
      if (entry.path().filename() != "rank0.stderr.log") continue;
      const std::string log = read_file(entry.path());
      return log.substr(0, log.find('\n'));
    }
    return "no log";
  }
  [[nodiscard]] std::vector<nlohmann::json> events(const std::string& type) const {
    return events_in(folder / "e", type);
  }

 private:
  ScopedVariable packages_{"PYTHONPATH", CP_POOL_ADAPTER_PACKAGE};
};

TEST_F(AdapterProgram, RunsOnForkedRanksAndSaysHowToRerun) {
  const Finished done = run_adapter("model=pass | model=error");
  EXPECT_EQ(done.exit_code, 100) << done.err;
  ASSERT_EQ(events("fork_server").size(), 1U);
  EXPECT_EQ(events("fork_server")[0]["ready"], true) << done.err;
  EXPECT_EQ(first_words(), "forked");
  EXPECT_THAT(done.out, HasSubstr(" --adapter " + path("mine.py") + " --python python3 "));
}

TEST_F(AdapterProgram, ForksNoRanksWhereItIsToldNotTo) {
  run_adapter("model=pass", {"--fork", "off"});
  EXPECT_EQ(first_words(), "executed");
  EXPECT_TRUE(events("fork_server").empty());
  adapter_is(R"({"fork":false})");
  const Finished declared = run_adapter("model=pass");
  EXPECT_EQ(first_words(), "executed");
  EXPECT_THAT(declared.err,
              HasSubstr("cp-pool: warning: ranks are started one by one: the adapter declares fork=False\n"));
  adapter_is(R"({"preload":["no_such_module"]})");
  EXPECT_THAT(run_adapter("model=pass").err, HasSubstr("the adapter names 'no_such_module' in preload, whose import"));
}

TEST_F(AdapterProgram, IsImportedOnceForAllPoolsAndThoseThatReplaceThem) {
  adapter_is(fmt::format(R"({{"counts":"{}"}})", path("imports")));
  sizes_are("[1,2,4]", R"("pass":{},"crash":{})");
  run_adapter("demo/*");
  EXPECT_EQ(events("case_finished").size(), 6U);
  EXPECT_GE(events("pool_ready").size(), 3U);
  EXPECT_EQ(read_file(folder / "imports"), "imported\n");
}

TEST_F(AdapterProgram, IsImportedByEachRankIfItsImportLeavesAThread) {
  adapter_is(fmt::format(R"({{"counts":"{}","thread":true,"skips":["skip"]}})", path("imports")));
  const Finished done = run_adapter("model=pass | model=skip");
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(first_words(), "forked");
  EXPECT_THAT(done.err, HasSubstr("cp-pool: warning: each rank imports the adapter by itself: threads exist after the "
                                  "imports, which a forked rank would lack: of the test, in "));
  EXPECT_EQ(read_file(folder / "imports"), "imported\nimported\n") << "to ask it, and its rank";
  EXPECT_EQ(events("case_started").size(), 1U) << "it was asked what it would skip";
}

TEST_F(AdapterProgram, ThatJudgesNothingExits96) {
  EXPECT_THAT(run_adapter("model=skip"),
              exits(96, err(HasSubstr("cp-pool: error: nothing was judged: 1 case skipped, all that there were\n"))));
  EXPECT_EQ(run_adapter("model=skip | model=pass").exit_code, 0);
  EXPECT_EQ(run("model=skip").exit_code, 0) << "another worker may skip all";
}

TEST_F(AdapterProgram, StartsNoPoolForWhatItDeclaresToSkip) {
  EXPECT_THAT(run_adapter("model=skip"), exits(96));
  EXPECT_EQ(events("case_finished")[0]["reason"], "it has no skip");
  EXPECT_EQ(first_words(), "no log") << "a rank was started";
  EXPECT_TRUE(events("pool_spawned").empty());
  // A declaration that rules out forks is known before as well.
  adapter_is(R"({"skips":["skip"],"fork":false})");
  run_adapter("model=skip");
  EXPECT_TRUE(events("pool_spawned").empty());
  EXPECT_EQ(run_adapter("model=skip | model=pass").exit_code, 0);
  EXPECT_EQ(events("pool_ready").size(), 1U);
  EXPECT_EQ(events("case_started").size(), 1U) << "the pool was sent what it would skip";
}

TEST_F(AdapterProgram, WhoseExtensionCannotBeLoadedIsTriedOnceForAllWorldSizes) {
  const ScopedVariable broken{"CP_POOL_TEST_NO_EXTENSION", "1"};
  sizes_are("[1,2,4]", R"("pass":{})");
  EXPECT_THAT(run_adapter("model=pass"), exits(96));
  EXPECT_EQ(events("case_finished").size(), 3U);
  for (const nlohmann::json& event : events("case_finished")) {
    EXPECT_EQ(event["reason"], "the pool cannot start: the extension module cannot be loaded");
  }
  EXPECT_EQ(first_words(), "no log") << "a rank was started";
}

TEST_F(AdapterProgram, ThatHangsCostsOneStartTimeoutAndShowsWhere) {
  adapter_is(R"({"hangs":true})");
  const auto start = std::chrono::steady_clock::now();
  const Finished done = run_adapter("model=pass", {"--start-timeout", "10s"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{20}) << "it was tried again";
  EXPECT_EQ(done.exit_code, 96);
  const nlohmann::json finished = events("case_finished").at(0);
  EXPECT_THAT(finished["reason"].get<std::string>(),
              HasSubstr("mine.py: not ready after 9.0 s, 90 % of --start-timeout: still in load (loading.py:"));
  EXPECT_THAT(finished.at("stderr").at(0).at("text").get<std::string>(), HasSubstr("time.sleep(3600)"));
  EXPECT_EQ(first_words(), "no log") << "a rank was started";
}

TEST_F(AdapterProgram, IsRefusedOtherBoundsByAWorkerThatDoesNotKnowThem) {
  EXPECT_THAT(run_adapter("model=pass", {"--bound-factor", "2"}), exits(96));
  EXPECT_EQ(events("pool_spawned").size(), 1U) << "another start cannot help";
  EXPECT_THAT(events("case_finished")[0]["reason"].get<std::string>(), HasSubstr("does not know --bound-factor"));
}

TEST_F(AdapterProgram, IsAskedByListWhatItWouldSkip) {
  const auto list = [&](const Words& more) {
    return call(
        with({"list", "--matrix", path("demo.json"), "--adapter", path("mine.py"), "--python", "python3"}, more));
  };
  EXPECT_THAT(list({"--filter", "model=pass | model=skip"}).out_lines(),
              ElementsAre(kPass, "demo/skip/p2p/cp1/bshd/fp32  skip: it has no skip"));
  EXPECT_EQ(list({"--count"}).out, "demo 7\ntotal 7\nskipped 2\n");
  const auto array = nlohmann::json::parse(list({"--json", "--filter", "model=pass | model=skip"}).out);
  EXPECT_EQ(array[0]["skip"], "");
  EXPECT_EQ(array[1]["skip"], "it has no skip");
  adapter_is("no JSON");
  EXPECT_THAT(list({}),
              exits(96, err(HasSubstr("JSONDecodeError"), HasSubstr("cannot be asked what it would skip: exit 1"))));
}

TEST_F(AdapterProgram, IsAskedByExplainHowMuchEachRankWouldCompute) {
  const auto explain = [&](const std::string& id, const Words& more) {
    return call(with({"explain", id, "--matrix", path("demo.json")}, more));
  };
  const Words with_adapter = {"--adapter", path("mine.py"), "--python", "python3"};
  EXPECT_THAT(explain(kPass, with_adapter),
              exits(0, out(HasSubstr("compute: what the rows and heads of " + path("mine.py")),
                           HasSubstr("  largest share: rank 1 computes 1.50 x the mean of the ranks\n"))));
  EXPECT_THAT(explain("demo/skip/p2p/cp1/bshd/fp32", with_adapter).out, HasSubstr("skips this case: it has no skip\n"));
  EXPECT_EQ(explain(kPass, {"--python", "python3"}).exit_code, 2) << "it needs --adapter";
  EXPECT_EQ(explain(kPass, {"--adapter", path("mine.py"), "--html", path("x")}).exit_code, 2);
}

TEST_F(AdapterProgram, IsExaminedByDoctor) {
  const auto doctor = [&] { return call({"doctor", "--adapter", path("mine.py"), "--python", "python3"}); };
  EXPECT_THAT(doctor(), exits(0, out(HasSubstr(", torch 0.0.test, cp_pool 0.0.test\n"),
                                     HasSubstr("adapter    ok      " + path("mine.py")), HasSubstr("2 ready in"))));
  adapter_is("no JSON");
  EXPECT_THAT(doctor(), exits(96, out(HasSubstr("adapter    MISSING " + path("mine.py") + " cannot be loaded\n"),
                                      HasSubstr("json.decoder.JSONDecodeError"), Not(HasSubstr("ready in")))));
  EXPECT_THAT(call({"doctor", "--adapter", path("mine.py"), "--python", "/nowhere/python"}),
              exits(96, out(HasSubstr("python     MISSING /nowhere/python\n"), HasSubstr("No such file"),
                            HasSubstr("--python PATH"))));
}

}  // namespace
}  // namespace cp_pool::test
