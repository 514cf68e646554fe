// How a service begins, and how it ends: asked to, by signals, killed, or when nobody needs it.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/service/testing/service_fixture.h"

namespace cp_pool::service_test {
namespace {

namespace fs = std::filesystem;
using test::is_one_error;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

using Life = Service;

// --- Beginning
// ---------------------------------------------------------------------------------------------------------

TEST_F(Life, SaysWhereItListensAndThatItHasEnded) {
  StartedService service({"--slots", "3"}, "nightly");
  const pid_t pid = service.pid();
  const Finished stopped = call({"stop", "--name", "nightly"});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_EQ(stopped.out, fmt::format("service 'nightly' (process {}) has ended\n", pid));
  const Finished done = service.wait();
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_THAT(
      done.err,
      AllOf(HasSubstr(fmt::format("service 'nightly' (process {}) listens on {}", pid, path("cp-pool/nightly.sock"))),
            HasSubstr("3 CPU slots"), HasSubstr("has ended")));
  EXPECT_FALSE(fs::exists(path("cp-pool/nightly.sock")));
}

TEST_F(Life, ASecondOneOfTheNameIsAnErrorThatNamesTheFirst) {
  const StartedService service;
  const Finished second = call({"serve"});
  EXPECT_EQ(second.exit_code, 96);
  EXPECT_THAT(second.err, is_one_error(fmt::format("process {}", service.pid())));
  EXPECT_EQ(RawClient::greeted().status()["pid"], service.pid());
}

TEST_F(Life, OthersOfOtherNamesStandBesideIt) {
  const StartedService one;
  const StartedService two({}, "two");
  EXPECT_EQ(RawClient::greeted("two").status()["pid"], two.pid());
  EXPECT_EQ(RawClient::greeted().status()["pid"], one.pid());
}

TEST_F(Life, ReplacesTheSocketOfOneThatWasKilled) {
  {
    const StartedService killed;
  }
  EXPECT_TRUE(fs::exists(path("cp-pool/default.sock")));
  const Finished nobody = call({"status"});
  EXPECT_EQ(nobody.exit_code, 96);
  EXPECT_THAT(nobody.err, is_one_error("no service 'default' is there"));
  const StartedService service;
  EXPECT_EQ(RawClient::greeted().status()["pid"], service.pid());
}

TEST_F(Life, WhatCannotBeItsNameOrPlaceIsAnError) {
  EXPECT_THAT(call({"serve", "--name", "../x"}).err, HasSubstr("'../x' is no name of a service"));
  EXPECT_THAT(call({"serve", "--name", "x", "--stdio"}).err, AllOf(HasSubstr("--stdio"), HasSubstr("--name")));
  test::write_file(path("cp-pool"), "no folder");
  const Finished done = call({"serve"});
  EXPECT_EQ(done.exit_code, 96);
  EXPECT_THAT(done.err, is_one_error("cp-pool: it is no folder"));
}

TEST_F(Life, GoesOnAfterAHangUpUnderNohup) {
  auto* const before = std::signal(SIGHUP, SIG_IGN);  // which the service inherits
  StartedService service;
  std::signal(SIGHUP, before);
  service.signal(SIGHUP);
  RawClient client = RawClient::greeted();
  client.open("run");
  client.submit("run", "pass");
  client.close_run("run");
  EXPECT_THAT(outcomes_in(client.events_of("run")), ElementsAre("pass: pass"));
}

// As systemd starts it: with a socket that listens already, and which is not its own to remove.
TEST_F(Life, TakesTheSocketOfSystemd) {
  fs::create_directory(path("cp-pool"));
  const std::string place = path("cp-pool/default.sock");
  const UniqueFd listening{::socket(AF_UNIX, SOCK_STREAM, 0)};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  place.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listening.get(), 16), 0);
  // A client that came before the service was started.
  RawClient early;
  early.hello();
  const std::string command = fmt::format("export LISTEN_FDS=1 LISTEN_PID=$$; exec '{}' serve --idle-exit 50ms 3<&{}",
                                          test::kProgram, listening.get());
  Program program{{"bash", "-c", command}};
  early.reply_named("welcome");
  early.open("run");
  early.submit("run", "pass");
  early.close_run("run");
  const std::vector<json> events = early.events_of("run");
  EXPECT_THAT(outcomes_in(events), ElementsAre("pass: pass"));
  early.vanish();
  const Finished done = program.wait();
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("the socket of systemd"));
  EXPECT_TRUE(fs::exists(place));
}

TEST_F(Life, ASocketOfSystemdThatIsNoneIsAnError) {
  const std::string command =
      fmt::format("export LISTEN_FDS=1 LISTEN_PID=$$; exec '{}' serve 3</dev/null", test::kProgram);
  const Finished done = Program{{"bash", "-c", command}}.wait();
  EXPECT_EQ(done.exit_code, 96);
  EXPECT_THAT(done.err, is_one_error("LISTEN_FDS"));
}

// --- The end
// -----------------------------------------------------------------------------------------------------------

// A client one of whose cases runs and another waits.
class BusyClient {
 public:
  explicit BusyClient(const std::string& model) {
    client.open("run");
    client.submit("run", model);
    rank = client.event("pool_spawned")["pids"][0];
    client.event("case_started");
    client.submit("run", "pass");
    client.status();
  }
  RawClient client = RawClient::greeted();
  int rank = 0;
};

class Drain : public Service, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(By, Drain, ::testing::Values(SIGTERM, SIGINT, SIGHUP, 0), [](const auto& info) {
  return std::string(info.param == SIGTERM  ? "SIGTERM"
                     : info.param == SIGINT ? "SIGINT"
                     : info.param == SIGHUP ? "SIGHUP"
                                            : "Stop");
});

TEST_P(Drain, EndsWhatRunsAndDoesNotRunWhatWaits) {
  StartedService service({"--slots", "1"});
  BusyClient busy("until_sigusr1");
  RawClient idle = RawClient::greeted();
  std::optional<RawClient> asker;
  if (GetParam() != 0) {
    service.signal(GetParam());
  } else {
    asker.emplace(RawClient::greeted());
    asker->say({{"request", "stop"}});
  }
  EXPECT_THAT(idle.reply_named("stopping")["why"].get<std::string>(), Not(IsEmpty()));
  EXPECT_THAT(idle.rest(), IsEmpty());
  RawClient late = RawClient::greeted();
  late.open("late");
  EXPECT_THAT(late.reply_named("refused")["message"].get<std::string>(), HasSubstr("being stopped"));
  EXPECT_EQ(late.status()["stopping"], true);
  // Who has asked for it is told by the end of its connection that nothing is left.
  if (asker) {
    asker->reply_named("stopping");
    EXPECT_FALSE(asker->status()["pools"].empty());
  }
  ::kill(busy.rank, SIGUSR1);
  std::vector<json> events;
  for (const json& reply : busy.client.rest()) {
    if (reply["reply"] == "event") events.push_back(reply["event"]);
  }
  EXPECT_THAT(outcomes_in(events), UnorderedElementsAre("until_sigusr1: pass", "pass: not-run"));
  for (const json& event : events) {
    if (event["type"] == "case_finished" && event["outcome"] == "not-run") {
      EXPECT_THAT(event["reason"].get<std::string>(), HasSubstr("service was stopped"));
    }
  }
  EXPECT_EQ(events.back()["type"], "run_finished");
  EXPECT_EQ(events.back()["ledger_exact"], true);
  EXPECT_EQ(service.wait().exit_code, 0);
}

TEST_F(Life, ASecondSignalDoesNotWait) {
  StartedService service({"--slots", "1"});
  BusyClient busy("ignore_sigterm");
  service.signal(SIGTERM);
  busy.client.reply_named("stopping");
  service.signal(SIGTERM);
  std::vector<json> events;
  for (const json& reply : busy.client.rest()) {
    if (reply["reply"] == "event") events.push_back(reply["event"]);
  }
  EXPECT_THAT(outcomes_in(events), UnorderedElementsAre("pass: not-run", "ignore_sigterm: cancelled"));
  EXPECT_EQ(service.wait().exit_code, 0);
  EXPECT_NE(::kill(busy.rank, 0), 0);
}

TEST_F(Life, EndsWhenNobodyWasConnectedForLong) {
  StartedService service({"--idle-exit", "200ms"});
  RawClient client = RawClient::greeted();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(client.status()["stopping"], false) << "somebody is connected";
  client.vanish();
  EXPECT_EQ(service.wait().exit_code, 0);
  EXPECT_FALSE(fs::exists(path("cp-pool/default.sock")));
}

// The kernel kills them with it. Those that live on then do so for good.
TEST_F(Life, NoRankOutlivesOneThatIsKilled) {
  StartedService service({"--slots", "8", "--spare"});
  BusyClient busy("ignore_sigterm");
  RawClient other = RawClient::greeted();
  other.open("other");
  other.submit("other", "pass", {}, 4);
  other.close_run("other");
  other.events_of("other");
  std::vector<UniqueFd> ranks;
  const json pools = other.status()["pools"];
  for (const json& pool : pools) {
    for (const json& pid : pool["pids"]) {
      ranks.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, pid.get<int>(), 0)));
    }
  }
  ASSERT_GE(ranks.size(), 5U) << pools;
  const auto killed = std::chrono::steady_clock::now();
  service.signal(SIGKILL);
  const auto limit = killed + std::chrono::seconds(20);
  for (const UniqueFd& rank : ranks) {
    if (!rank) continue;  // it had ended
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    pollfd exited{rank.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&exited, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0))), 1) << "a rank lives on";
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - killed;
  RecordProperty("ms", std::to_string(took.count()));
  for (const json& reply : busy.client.rest()) EXPECT_NE(reply.value("/event/type"_json_pointer, ""), "run_finished");
  service.wait();
}

}  // namespace
}  // namespace cp_pool::service_test
