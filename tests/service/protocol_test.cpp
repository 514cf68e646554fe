// The protocol between a client and the service, over the socket and over stdin and stdout.
#include <sys/wait.h>

#include "driver/os/spawn.h"
#include "tests/service/testing/service_fixture.h"

namespace cp_pool::service_test {
namespace {

using namespace ::testing;

enum class Over { socket, stdio };

class Protocol : public Service, public ::testing::WithParamInterface<Over> {
 protected:
  void SetUp() override {
    Service::SetUp();
    if (GetParam() == Over::socket) {
      service_.emplace(Words{"--slots", "2"});
      client.emplace();
      return;
    }
    Pipe in = make_pipe();
    Pipe out = make_pipe();
    SpawnRequest request;
    request.argv = {kProgram, "serve", "--stdio", "--slots", "2"};
    request.stdin_fd = in.read.get();
    request.stdout_fd = out.write.get();
    child_ = spawn(request);
    client.emplace(std::move(out.read), std::move(in.write));
  }
  void TearDown() override {
    client.reset();
    if (!child_) return;
    int status = 0;
    EXPECT_EQ(::waitpid(child_->pid, &status, 0), child_->pid);
    EXPECT_EQ(status, 0) << "it ends well when its client has left";
  }
  void greet() {
    client->hello();
    client->reply_named("welcome");
  }

  std::optional<RawClient> client;

 private:
  std::optional<StartedService> service_;
  std::optional<SpawnedProcess> child_;
};

INSTANTIATE_TEST_SUITE_P(Over, Protocol, ::testing::Values(Over::socket, Over::stdio),
                         [](const auto& info) { return info.param == Over::socket ? "Socket" : "Stdio"; });

// --- hello -----------------------------------------------------------------------------------------------------------

TEST_P(Protocol, HelloIsAnsweredWithVersionAndProcess) {
  client->hello();
  const json welcome = client->reply().value();
  EXPECT_EQ(welcome["reply"], "welcome");
  EXPECT_EQ(welcome["protocol"], 1);
  EXPECT_EQ(welcome["version"], CP_POOL_VERSION);
  EXPECT_GT(welcome["pid"], 1);
}

TEST_P(Protocol, AClientOfAnotherVersionIsToldWhichSideIsOlder) {
  client->say({{"request", "hello"}, {"protocol", 2}});
  const std::vector<json> replies = client->rest();
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_EQ(replies[0]["reply"], "refused");
  EXPECT_EQ(replies[0]["fatal"], true);
  EXPECT_THAT(replies[0]["message"].get<std::string>(),
              AllOf(HasSubstr("version 1"), HasSubstr("the client 2"), HasSubstr("restart the service")));
}

TEST_P(Protocol, AnOlderClientIsToldToBeRestarted) {
  client->say({{"request", "hello"}, {"protocol", 0}});
  const std::vector<json> replies = client->rest();
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_THAT(replies[0]["message"].get<std::string>(), HasSubstr("restart the client"));
}

TEST_P(Protocol, AnythingBeforeHelloEndsTheConnection) {
  client->open("r");
  client->hello();
  const std::vector<json> replies = client->rest();
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_THAT(replies[0]["message"].get<std::string>(), HasSubstr("hello"));
  EXPECT_EQ(replies[0]["fatal"], true);
}

// --- Runs ------------------------------------------------------------------------------------------------------------

TEST_P(Protocol, ACaseRunsAndItsOwnIdAndNumberComeBack) {
  greet();
  client->open("mine", {{"title", "a title"}, {"size", "small"}});
  client->submit("mine", "pass", {{"id", "my/own id é"}, {"number", 42}, {"rerun", "do it again"}});
  client->close_run("mine");
  const std::vector<json> events = client->events_of("mine");
  EXPECT_EQ(events.front()["type"], "run_started");
  EXPECT_EQ(events.front()["title"], "a title");
  EXPECT_EQ(events.front()["size"], "small");
  EXPECT_EQ(events.back()["type"], "run_finished");
  EXPECT_EQ(events.back()["ledger_exact"], true);
  EXPECT_EQ(events.back()["exit_code"], 0);
  std::vector<json> own;
  for (const json& event : events) {
    if (event["type"] == "case_started" || event["type"] == "case_finished") own.push_back(event);
  }
  ASSERT_THAT(own, SizeIs(2));
  for (const json& event : own) {
    EXPECT_EQ(event["id"], "my/own id é");
    EXPECT_EQ(event["number"], 42);
  }
  EXPECT_EQ(own[1]["outcome"], "pass");
  EXPECT_EQ(own[1]["rerun"], "do it again");
}

TEST_P(Protocol, ACaseWithoutAnIdGetsOneOfItsFields) {
  greet();
  client->open("mine");
  client->say({{"request", "submit"}, {"run", "mine"}, {"case", fake_case("pass")}});
  client->close_run("mine");
  EXPECT_THAT(client->outcomes_of("mine"), ElementsAre(HasSubstr("pass/")));
}

TEST_P(Protocol, EveryKindOfEndIsOneOutcome) {
  greet();
  client->open("mine");
  for (const char* model : {"pass", "fail", "skip", "error", "sigsegv", "wrong_seq", "result_then_death"}) {
    client->submit("mine", model);
  }
  client->submit("mine", "hang", {{"timeout_ms", 300}});
  client->close_run("mine");
  const std::vector<json> events = client->events_of("mine");
  EXPECT_THAT(outcomes_in(events),
              UnorderedElementsAre("pass: pass", "fail: fail", "skip: skip", "error: error", "sigsegv: crash",
                                   "wrong_seq: crash", "result_then_death: pass", "hang: timeout"));
  EXPECT_EQ(events.back()["ledger_exact"], true);
  EXPECT_EQ(events.back()["exit_code"], 100);
}

TEST_P(Protocol, RunsOfAClientStandSideBySide) {
  greet();
  client->open("one");
  client->open("two");
  client->submit("one", "until_sigusr1");
  const int pid = client->event("pool_spawned")["pids"][0];
  client->event("case_started");
  client->submit("two", "pass");
  client->close_run("two");
  EXPECT_THAT(client->outcomes_of("two"), ElementsAre("pass: pass"));
  ::kill(pid, SIGUSR1);
  client->close_run("one");
  EXPECT_THAT(client->outcomes_of("one"), ElementsAre("until_sigusr1: pass"));
}

TEST_P(Protocol, ANameMayBeUsedAgainWhenItsRunHasEnded) {
  greet();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(outcomes_in(client->run("pass")), ElementsAre("pass: pass"));
  }
  EXPECT_EQ(client->status()["clients"][0]["finished"], 3);
}

TEST_P(Protocol, CancelEndsWhatRunsAndWhatWaits) {
  greet();
  client->open("mine");
  client->submit("mine", "hang", {}, 2);
  client->event("case_started");
  client->submit("mine", "pass", {}, 2);
  client->say({{"request", "cancel"}, {"run", "mine"}});
  const std::vector<json> events = client->events_of("mine");
  EXPECT_THAT(outcomes_in(events), UnorderedElementsAre("hang: cancelled", "pass: not-run"));
  EXPECT_EQ(events.back()["interrupted"], true);
  EXPECT_EQ(events.back()["exit_code"], 130);
  // The connection can still be used.
  EXPECT_THAT(outcomes_in(client->run("pass", {}, 2)), ElementsAre("pass: pass"));
}

TEST_P(Protocol, CancelWithKillDoesNotWaitForTheGrace) {
  greet();
  client->open("mine", {{"grace_ms", 600000}});
  client->submit("mine", "ignore_sigterm");
  client->event("case_started");
  client->say({{"request", "cancel"}, {"run", "mine"}, {"kill", true}});
  EXPECT_THAT(client->outcomes_of("mine"), ElementsAre("ignore_sigterm: cancelled"));
}

// A client that has closed its side of the connection still gets all answers.
TEST_P(Protocol, TheEndOfTheRequestsIsNotTheEndOfTheAnswers) {
  greet();
  client->open("mine");
  for (int i = 0; i < 20; ++i) client->submit("mine", "pass", {{"number", i}});
  client->stop_talking();
  const std::vector<json> events = client->rest_of_events();
  EXPECT_THAT(outcomes_in(events), AllOf(SizeIs(20), Each("pass: pass")));
  EXPECT_EQ(events.back()["type"], "run_finished");
}

TEST_P(Protocol, StatusSaysWhatRunsForWhom) {
  greet();
  client->open("mine");
  client->submit("mine", "until_sigusr1", {}, 2);
  const json started = client->event("case_started");
  const json status = client->status();
  EXPECT_EQ(status["version"], CP_POOL_VERSION);
  EXPECT_EQ(status["stopping"], false);
  ASSERT_THAT(status["pools"], SizeIs(1));
  const json& pool = status["pools"][0];
  EXPECT_EQ(pool["pool"], started["pool"]);
  EXPECT_EQ(pool["state"], "busy");
  EXPECT_EQ(pool["world_size"], 2);
  EXPECT_EQ(pool["runs"], "until_sigusr1");
  EXPECT_THAT(pool["worker"].get<std::string>(), HasSubstr("fake_worker"));
  ASSERT_THAT(status["clients"], SizeIs(1));
  EXPECT_EQ(status["clients"][0]["client"], "a test");
  EXPECT_EQ(status["clients"][0]["unfinished"], 1);
  EXPECT_EQ(pool["client"], status["clients"][0]["pid"]);
  EXPECT_EQ(status["devices"][0]["slots"], 2);
  EXPECT_EQ(status["devices"][0]["held"], 2);
  ::kill(pool["pids"][0].get<int>(), SIGUSR1);
  client->close_run("mine");
  EXPECT_THAT(client->outcomes_of("mine"), ElementsAre("until_sigusr1: pass"));
  EXPECT_EQ(client->status()["counts"]["pass"], 1);
}

// --- What is refused -------------------------------------------------------------------------------------------------

TEST_P(Protocol, ARefusalNamesLineFieldAndValueAndTheConnectionGoesOn) {
  greet();
  client->open("mine");
  client->event("run_started");
  struct Refused {
    json request;
    std::vector<std::string> said;
  };
  json bad_case = fake_case("pass");
  bad_case["cp_size"] = "two";
  const std::vector<Refused> all{
      {{{"request", "opne"}}, {"line 3", "opne"}},
      {{{"request", "open"}, {"run", "x"}, {"device", "tpu"}}, {"line 4", "device", "tpu"}},
      {{{"request", "open"}, {"run", "x"}, {"timeout_ms", "1s"}}, {"timeout_ms", "1s"}},
      {{{"request", "open"}, {"run", "x"}, {"timeout_ms", 0}}, {"timeout_ms"}},
      {{{"request", "open"}, {"run", "x"}, {"grace_ms", -1}}, {"grace_ms", "-1"}},
      {{{"request", "open"}, {"run", "x"}, {"folder", "here"}}, {"folder", "absolute"}},
      {{{"request", "open"}, {"run", "x"}, {"environment", {"PATH"}}}, {"PATH", "NAME=VALUE"}},
      {{{"request", "open"}, {"run", "mine"}}, {"mine", "open already"}},
      {{{"request", "submit"}, {"run", "none"}, {"case", fake_case("pass")}}, {"none", "not open"}},
      {{{"request", "submit"}, {"run", "mine"}, {"case", bad_case}}, {"cp_size", "two"}},
      {{{"request", "submit"}, {"run", "mine"}, {"case", fake_case("pass")}, {"repetitions", "x"}},
       {"repetitions", "x"}},
      {{{"request", "submit"}, {"run", "mine"}, {"case", fake_case("pass")}, {"timeout_ms", 0}},
       {"timeout_ms", "got 0"}},
      {{{"request", "submit"}, {"run", "mine"}, {"case", fake_case("pass")}, {"timeout_ms", 1e300}},
       {"timeout_ms", "1e+300"}},
      {{{"request", "close"}, {"run", "none"}}, {"none", "not open"}}};
  for (const Refused& one : all) {
    client->say(one.request);
    const json reply = client->reply().value();
    EXPECT_EQ(reply["reply"], "refused") << one.request;
    EXPECT_EQ(reply["fatal"], false) << one.request;
    for (const std::string& part : one.said) EXPECT_THAT(reply["message"].get<std::string>(), HasSubstr(part));
  }
  client->submit("mine", "pass");
  client->close_run("mine");
  EXPECT_THAT(client->outcomes_of("mine"), ElementsAre("pass: pass"));
}

TEST_P(Protocol, ARefusedCaseIsNamedByRunAndNumber) {
  greet();
  client->open("mine");
  json bad_case = fake_case("pass");
  bad_case["heads"] = 0;
  client->say({{"request", "submit"}, {"run", "mine"}, {"number", 7}, {"case", bad_case}});
  const json bad = client->reply_named("refused");
  EXPECT_EQ(bad["run"], "mine");
  EXPECT_EQ(bad["number"], 7);
  client->close_run("mine");
  client->submit("mine", "pass", {{"number", 8}});
  const json late = client->reply_named("refused");
  EXPECT_EQ(late["number"], 8);
}

TEST_P(Protocol, WhatIsNoJsonIsRefusedByItsLine) {
  greet();
  for (const char* text : {"hello?", "{\"request\":", "[1,2", "\x01\x02\xff\xfe", "\"text\"", "{} {}"}) {
    client->say_bytes(std::string(text) + "\n");
    const json reply = client->reply().value();
    EXPECT_EQ(reply["reply"], "refused") << text;
    EXPECT_THAT(reply["message"].get<std::string>(), HasSubstr("line ")) << text;
  }
  client->say_bytes(std::string(100000, '[') + "\n");
  EXPECT_EQ(client->reply().value()["reply"], "refused");
  EXPECT_EQ(client->status()["stopping"], false);
}

// The run may end while its cancel is on the way.
TEST_P(Protocol, CancelOfARunThatHasEndedIsNothing) {
  greet();
  client->say({{"request", "cancel"}, {"run", "gone"}});
  EXPECT_EQ(client->status()["reply"], "status");
}

}  // namespace
}  // namespace cp_pool::service_test
