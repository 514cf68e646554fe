// How a service begins, and how it ends: on request, by a signal, killed, or because nobody uses it.
#include <algorithm>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/service/testing/service_fixture.h"

namespace cp_pool::service_test {
namespace {

namespace fs = std::filesystem;
using namespace ::testing;

using Life = Service;

// --- Beginning -------------------------------------------------------------------------------------------------------

TEST_F(Life, SaysWhereItListensAndThatItHasEnded) {
  StartedService service({"--slots", "3"}, "nightly");
  const pid_t pid = service.pid();
  EXPECT_THAT(call({"stop", "--name", "nightly"}),
              exits(0, out(fmt::format("service 'nightly' (process {}) has ended\n", pid))));
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
  EXPECT_THAT(call({"serve"}), refuses(96, fmt::format("process {}", service.pid())));
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
  EXPECT_THAT(call({"status"}), refuses(96, "service 'default' is not running"));
  const StartedService service;
  EXPECT_EQ(RawClient::greeted().status()["pid"], service.pid());
}

TEST_F(Life, WhatCannotBeItsNameOrPlaceIsAnError) {
  EXPECT_THAT(call({"serve", "--name", "../x"}).err, HasSubstr("'../x' is no name of a service"));
  EXPECT_THAT(call({"serve", "--name", "x", "--stdio"}).err, AllOf(HasSubstr("--stdio"), HasSubstr("--name")));
  write_file(path("cp-pool"), "no folder");
  EXPECT_THAT(call({"serve"}), refuses(96, "cp-pool: it is no folder"));
}

TEST_F(Life, GoesOnAfterAHangUpUnderNohup) {
  auto* const before = std::signal(SIGHUP, SIG_IGN);  // the service inherits this, as under nohup
  StartedService service;
  std::signal(SIGHUP, before);
  service.signal(SIGHUP);
  RawClient client = RawClient::greeted();
  EXPECT_THAT(outcomes_in(client.run("pass")), ElementsAre("pass: pass"));
}

// systemd-socket-activate is systemd's program for trying this: it listens, and executes the service when a client
// comes.
TEST_F(Life, IsStartedBySystemdForItsFirstClient) {
  const std::string activate = "/usr/bin/systemd-socket-activate";
  if (!fs::exists(activate)) GTEST_SKIP() << activate << " is missing: Debian's package systemd has it";
  fs::create_directory(path("cp-pool"));
  const std::string place = path("cp-pool/default.sock");
  Program service{{activate, "--listen=" + place, "--setenv=XDG_RUNTIME_DIR", kProgram, "serve", "--slots", "2"}};
  wait_until("systemd listens", [&] { return fs::is_socket(place); });
  EXPECT_THAT(submit({"pass", "fail"}, {"--service", "default"}),
              exits(100, err(HasSubstr(fmt::format("on service 'default' (process {})", service.pid())))));
  EXPECT_EQ(RawClient::greeted().status()["counts"]["pass"], 1);
  EXPECT_EQ(call({"stop"}).exit_code, 0);
  EXPECT_EQ(service.wait().exit_code, 0);
  EXPECT_TRUE(fs::is_socket(place)) << "it is systemd's";
}

// systemd starts the service with a socket that already listens. The service must not remove that socket.
TEST_F(Life, TakesTheSocketOfSystemd) {
  fs::create_directory(path("cp-pool"));
  const std::string place = path("cp-pool/default.sock");
  const UniqueFd listening{::socket(AF_UNIX, SOCK_STREAM, 0)};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  place.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listening.get(), 16), 0);
  // A client that connects before the service is started.
  RawClient early;
  early.hello();
  const std::string command =
      fmt::format("export LISTEN_FDS=1 LISTEN_PID=$$; exec '{}' serve --idle-exit 1s 3<&{}", kProgram, listening.get());
  Program program{{"bash", "-c", command}};
  early.reply_named("welcome");
  const std::vector<json> events = early.run("pass");
  EXPECT_THAT(outcomes_in(events), ElementsAre("pass: pass"));
  early.vanish();
  EXPECT_THAT(program.wait(), exits(0, err(HasSubstr("the socket of systemd"))));
  EXPECT_TRUE(fs::exists(place));
}

TEST_F(Life, ASocketOfSystemdThatIsNoneIsAnError) {
  const std::string command = fmt::format("export LISTEN_FDS=1 LISTEN_PID=$$; exec '{}' serve 3</dev/null", kProgram);
  EXPECT_THAT(run_to_end({"bash", "-c", command}), refuses(96, "LISTEN_FDS"));
}

// --- The end ---------------------------------------------------------------------------------------------------------

// A client with a case that runs and a case that waits.
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
  // The client that asked for the stop stays connected: the end of its connection tells it that nothing is left.
  if (asker) {
    asker->reply_named("stopping");
    EXPECT_FALSE(asker->status()["pools"].empty());
  }
  ::kill(busy.rank, SIGUSR1);
  const std::vector<json> events = busy.client.rest_of_events();
  EXPECT_THAT(outcomes_in(events), UnorderedElementsAre("until_sigusr1: pass", "pass: not-run"));
  for (const json& event : of_type(events, "case_finished")) {
    if (event["outcome"] == "not-run") {
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
  const std::vector<json> events = busy.client.rest_of_events();
  EXPECT_THAT(outcomes_in(events), UnorderedElementsAre("pass: not-run", "ignore_sigterm: cancelled"));
  EXPECT_EQ(service.wait().exit_code, 0);
  EXPECT_NE(::kill(busy.rank, 0), 0);
}

// A pidfd of each living rank of these pools.
std::vector<UniqueFd> ranks_of(const json& pools) {
  std::vector<UniqueFd> out;
  for (const json& pool : pools) {
    for (const json& pid : pool["pids"]) {
      const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid.get<int>(), 0));
      if (fd >= 0) out.emplace_back(fd);  // otherwise the rank has ended
    }
  }
  return out;
}

// Ctrl-Z and fg.
TEST_F(Life, APauseEndsThePoolsOfAllClientsAndTheirCasesRunAgain) {
  // The group of a test program may be an orphaned one, whose processes the kernel does not stop for SIGTSTP.
  ASSERT_EQ(::setpgid(0, 0), 0);
  const StartedService service({"--slots", "2"});
  std::vector<RawClient> clients;
  for (int i = 0; i < 2; ++i) {
    RawClient& client = clients.emplace_back(RawClient::greeted());
    client.open("run");
    client.submit("run", "until_sigusr1");
    client.event("case_started");
  }
  const json before = clients.front().status()["pools"];
  service.signal(SIGTSTP);
  siginfo_t stopped{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(service.pid()), &stopped, WSTOPPED | WEXITED | WNOWAIT), 0);
  EXPECT_EQ(stopped.si_code, CLD_STOPPED);
  EXPECT_THAT(ranks_of(before), IsEmpty());
  service.signal(SIGCONT);
  for (RawClient& client : clients) {
    EXPECT_EQ(client.event("pool_retired")["reason"], "paused");
    client.event("run_paused");
    EXPECT_EQ(client.event("case_started")["attempt"], 2);
  }
  const json after = clients.front().status()["pools"];
  for (const json& pool : after) ::kill(pool["pids"][0].get<int>(), SIGUSR1);
  for (RawClient& client : clients) {
    client.close_run("run");
    EXPECT_THAT(client.outcomes_of("run"), ElementsAre("until_sigusr1: pass"));
  }
}

TEST_F(Life, EndsWhenNobodyWasConnectedForLong) {
  UniqueFd first;
  StartedService service({"--idle-exit", "200ms"}, "default", &first);
  RawClient client(std::move(first), UniqueFd{});
  client.hello();
  client.reply_named("welcome");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(client.status()["stopping"], false) << "somebody is connected";
  client.vanish();
  EXPECT_EQ(service.wait().exit_code, 0);
  EXPECT_FALSE(fs::exists(path("cp-pool/default.sock")));
}

// The time from the call until all of these processes have ended. A process that does not end in 20 s never will.
std::chrono::duration<double> until_ended(const std::vector<UniqueFd>& processes, const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  const auto limit = begin + std::chrono::seconds(20);
  call();
  for (const UniqueFd& process : processes) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    pollfd exited{process.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&exited, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0))), 1) << "a rank lives on";
  }
  return std::chrono::steady_clock::now() - begin;
}

// The kernel kills the ranks with their service. That takes at most 2 s, or on a very busy machine ten times as long as
// it takes there to kill four ranks one by one.
TEST_F(Life, NoRankOutlivesOneThatIsKilledByTwoSeconds) {
  StartedService service({"--slots", "8", "--spare"});
  BusyClient busy("ignore_sigterm");
  RawClient other = RawClient::greeted();
  const auto start_four = [&] {
    other.run("pass", {}, 4);
    return other.status()["pools"];
  };
  std::vector<UniqueFd> four;
  for (const json& pool : start_four()) {
    if (pool["world_size"] == 4) four = ranks_of(json::array({pool}));
  }
  ASSERT_EQ(four.size(), 4U);
  const auto by_one = until_ended(four, [&] {
    for (const UniqueFd& rank : four) ::syscall(SYS_pidfd_send_signal, rank.get(), SIGKILL, nullptr, 0);
  });
  const std::vector<UniqueFd> ranks = ranks_of(start_four());
  ASSERT_GE(ranks.size(), 5U);
  const auto with_service = until_ended(ranks, [&] { service.signal(SIGKILL); });
  RecordProperty("ms", std::to_string(with_service.count() * 1000));
  EXPECT_LT(with_service, std::max<std::chrono::duration<double>>(std::chrono::seconds(2), 10 * by_one))
      << "one by one they took " << by_one.count() << " s";
  for (const json& reply : busy.client.rest()) EXPECT_NE(reply.value("/event/type"_json_pointer, ""), "run_finished");
  service.wait();
}

}  // namespace
}  // namespace cp_pool::service_test
