// The real program with cases that are tried again, a worker that leaks state between cases, and capsules of its
// failures.
#include <csignal>
#include <filesystem>
#include <thread>
#include <utility>

#include "driver/cli/testing/command_line_fixture.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

using Capsules = CommandLine;
using Tries = CommandLine;

TEST_F(Tries, AreShownAndCountedInEveryReport) {
  const Finished done =
      run("model=pass | model=crash", {"--retries", "1", "--junit", path("j.xml"), "--events", path("e")});
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(done.out, AllOf(HasSubstr(", is run again"), HasSubstr("1 case run again (--retries)"),
                              HasSubstr("2 expanded = 1 pass + 0 fail + 1 crash")));
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr("<rerunError type=\"crash\""));
  EXPECT_THAT(events_in(path("e"), "case_tried"), SizeIs(1));
  const Finished report = call({"report", path("e"), "--junit", path("again.xml"), "--flaky", "fail"});
  EXPECT_EQ(report.exit_code, 100);
  EXPECT_THAT(report.out, HasSubstr("1 case run again (--retries)"));
  EXPECT_EQ(read_file(path("again.xml")), read_file(path("j.xml")));
}

TEST_F(Tries, AreOnlyAfterOutcomesThatThereAre) {
  const Finished wrong = run("*", {"--retry-on", "crash,tiemout"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("'tiemout' is none of fail, error, timeout, crash, infra; did you mean 'timeout'?"));
  EXPECT_EQ(run("*", {"--retry-on", "skip"}).exit_code, 2);
  EXPECT_EQ(run("*", {"--flaky", "maybe"}).exit_code, 2);
}

TEST_F(Capsules, AreThereOfEachFailureBeforeADriverWasKilled) {
  Words words = program_words("model=fail | model=hang", {"--capsules", path("caps"), "--events", path("e")});
  Program program{std::move(words)};
  while (program.running() && (!std::filesystem::exists(path("e")) ||
                               read_file(path("e")).find(R"("id":"demo/hang)") == std::string::npos)) {
    std::this_thread::yield();
  }
  program.signal(SIGKILL);
  EXPECT_EQ(program.wait().exit_code, 128 + SIGKILL);
  const Finished replayed = call({"replay", path("caps/demo__fail__p2p__cp1__bshd__fp32")});
  EXPECT_EQ(replayed.exit_code, 100) << replayed.err;
  EXPECT_THAT(replayed.out, HasSubstr("fail"));
}

TEST_F(Capsules, RunAFailureElsewhereWithWhatItNeeds) {
  const ScopedVariable leak{"CP_POOL_TEST_LEAK", "1"};
  const ScopedVariable requests{"CP_POOL_TEST_REQUESTS", path("requests").c_str()};
  const ScopedVariable kept{"NCCL_DEBUG", "WARN"};
  const ScopedVariable secret{"NCCL_UPLOAD_TOKEN", "s3cret-value"};
  const std::string id = "demo/pass_2/p2p/cp1/bshd/fp32";
  const Finished done =
      run("model=pass | model=pass_2", {"--triage", "--capsules", path("caps"), "--junit", path("j.xml"), "--html",
                                        path("h.html"), "--events", path("e")});
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(done.out, HasSubstr("verdict STATE_LEAK: " + id));
  EXPECT_THAT(done.out, HasSubstr("by demo/pass/p2p/cp1/bshd/fp32"));
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr("[[PROPERTY|verdict=STATE_LEAK]]"));
  EXPECT_THAT(read_file(path("h.html")), HasSubstr("verdict: STATE_LEAK (2 of 2)"));
  EXPECT_THAT(call({"report", path("e")}).out, HasSubstr("verdicts (--triage): 1 STATE_LEAK"));

  const std::string capsule = path("caps/demo__pass_2__p2p__cp1__bshd__fp32");
  const std::string text = read_file(capsule + "/capsule.json");
  EXPECT_THAT(text, HasSubstr("NCCL_DEBUG=WARN"));
  for (const auto& entry : std::filesystem::directory_iterator(capsule)) {
    EXPECT_THAT(read_file(entry.path()), Not(HasSubstr("s3cret-value"))) << entry.path();
  }
  const nlohmann::json parsed = nlohmann::json::parse(text);
  ASSERT_EQ(parsed["cases"].size(), 2U);
  EXPECT_EQ(parsed["verdict"]["kind"], "STATE_LEAK");
  // The capsule's requests are the first that the worker was sent.
  EXPECT_THAT(read_file(path("requests")), ::testing::StartsWith(read_file(capsule + "/requests.jsonl")));

  const Finished still = call({"replay", capsule});
  EXPECT_EQ(still.exit_code, 100) << still.err;
  EXPECT_THAT(still.out, HasSubstr(id + ": it still fails: fail"));
  const Finished healed = call({"replay", capsule, "--worker", "env CP_POOL_TEST_LEAK= " + kWorker});
  EXPECT_EQ(healed.exit_code, 0) << healed.err;
  EXPECT_THAT(healed.out, HasSubstr(id + ": it passes now; it was fail"));
  EXPECT_EQ(call({"replay", capsule, "--worker", "/no/such/worker"}).exit_code, 96);
}

TEST_F(Capsules, ThatAreNoneAreRefused) {
  const Finished none = call({"replay", path("demo.json")});
  EXPECT_EQ(none.exit_code, 94);
  EXPECT_THAT(none.err, is_one_error("demo.json is not a capsule"));
  EXPECT_EQ(call({"replay", path("nowhere")}).exit_code, 94);
}

}  // namespace
}  // namespace cp_pool::test
