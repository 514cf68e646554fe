// The real program with cases that are tried again, a worker that leaks state between cases, and capsules of its
// failures.
#include <csignal>
#include <thread>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

using Capsules = CommandLine;
using Tries = CommandLine;

TEST_F(Tries, AreShownAndCountedInEveryReport) {
  const Finished done =
      run("model=pass | model=crash", {"--retries", "1", "--junit", path("j.xml"), "--events", path("e")});
  EXPECT_THAT(done, exits(100, out(HasSubstr(", is run again"), HasSubstr("1 case run again (--retries)"),
                                   HasSubstr("2 expanded = 1 pass + 0 fail + 1 crash"))));
  EXPECT_THAT(read_file(path("j.xml")), HasSubstr("<rerunError type=\"crash\""));
  EXPECT_THAT(events_in(path("e"), "case_tried"), SizeIs(1));
  EXPECT_THAT(call({"report", path("e"), "--junit", path("again.xml"), "--flaky", "fail"}),
              exits(100, out(HasSubstr("1 case run again (--retries)"))));
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
  while (program.running() && !has_text(path("e"), R"("id":"demo/hang)")) std::this_thread::yield();
  program.signal(SIGKILL);
  EXPECT_EQ(program.wait().exit_code, 128 + SIGKILL);
  EXPECT_THAT(call({"replay", path("caps/demo__fail__p2p__cp1__bshd__fp32")}), exits(100, out(HasSubstr("fail"))));
}

TEST_F(Capsules, RunAFailureElsewhereWithWhatItNeeds) {
  const ScopedVariable leak{"CP_POOL_TEST_LEAK", "1"};
  const ScopedVariable requests{"CP_POOL_TEST_REQUESTS", path("requests").c_str()};
  const ScopedVariable kept{"NCCL_DEBUG", "WARN"};
  const ScopedVariable secret{"NCCL_UPLOAD_TOKEN", "s3cret-value"};
  const std::string id = "demo/pass_2/p2p/cp1/bshd/fp32";
  EXPECT_THAT(run("model=pass | model=pass_2", {"--triage", "--capsules", path("caps")}),
              exits(100, out(HasSubstr("verdict STATE_LEAK: " + id), HasSubstr("by demo/pass/p2p/cp1/bshd/fp32"))));

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

  EXPECT_THAT(call({"replay", capsule}), exits(100, out(HasSubstr(id + ": it still fails: fail"))));
  EXPECT_THAT(call({"replay", capsule, "--worker", "env CP_POOL_TEST_LEAK= " + kWorker}),
              exits(0, out(HasSubstr(id + ": it passes now; it was fail"))));
  EXPECT_EQ(call({"replay", capsule, "--worker", "/no/such/worker"}).exit_code, 96);
}

TEST_F(Capsules, ThatAreNoneAreRefused) {
  EXPECT_THAT(call({"replay", path("demo.json")}), refuses(94, "demo.json is not a capsule"));
  EXPECT_EQ(call({"replay", path("nowhere")}).exit_code, 94);
}

}  // namespace
}  // namespace cp_pool::test
