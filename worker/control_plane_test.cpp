#include "worker/control_plane.h"

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <future>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "worker/connect.h"

namespace cp_pool {
namespace {

// Returns an environment with a listening socket, as the driver hands one down.
protocol::RankEnvironment listening_environment() {
  protocol::RankEnvironment out;
  out.world_size = 2;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(fd, SOMAXCONN), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  out.master_fd = fd;
  out.master_port = ntohs(address.sin_port);
  return out;
}

class ControlPlane : public testing::Test {
 protected:
  protocol::RankEnvironment environment = listening_environment();
  std::optional<MailServer> server{std::in_place, environment};
};

TEST_F(ControlPlane, KeepsTheOrderOfASenderAndTheBoxesApart) {
  for (int generation = 0; generation < 100; ++generation) server->to_compute(RebuildCommand{generation});
  server->to_watchers(AbortCommand{7});
  server->to_compute(ExitCommand{});
  for (const int rank : {0, 1}) {
    Mail receiver(environment);
    EXPECT_EQ(std::get<AbortCommand>(receiver.receive_watch(rank)).generation, 7);
    for (int generation = 0; generation < 100; ++generation) {
      EXPECT_EQ(std::get<RebuildCommand>(receiver.receive_compute(rank)).generation, generation);
    }
    EXPECT_TRUE(std::holds_alternative<ExitCommand>(receiver.receive_compute(rank)));
  }
}

TEST_F(ControlPlane, WakesAReceiverThatWaits) {
  Mail receiver(environment);
  auto received = std::async(std::launch::async, [&] { return receiver.receive_compute(1); });
  server->to_compute(RebuildCommand{3});
  EXPECT_EQ(std::get<RebuildCommand>(received.get()).generation, 3);
}

TEST_F(ControlPlane, WaitsForACommandUntilTheDeadlineAlone) {
  Mail receiver(environment);
  const auto soon = [](std::chrono::milliseconds limit) { return std::chrono::steady_clock::now() + limit; };
  EXPECT_FALSE(receiver.receive_compute_until(1, soon(std::chrono::milliseconds(20))));
  EXPECT_FALSE(receiver.receive_compute_until(1, soon(std::chrono::milliseconds(-20))));
  server->to_compute(RebuildCommand{3});
  const auto command = receiver.receive_compute_until(1, soon(std::chrono::seconds(60)));
  ASSERT_TRUE(command);
  EXPECT_EQ(std::get<RebuildCommand>(*command).generation, 3);
}

TEST_F(ControlPlane, GivesRank0WhatRanksSayAlsoWhatCameBeforeItListened) {
  Mail first(environment);
  Mail second(environment);
  std::vector<int> heard;
  std::promise<void> all;
  first.to_rank0(Goodbye{1});
  const auto take = [&](const Bytes& message) {
    heard.push_back(std::get<Goodbye>(decode_rank_message(message)).rank);
    if (heard.size() == 3) all.set_value();
  };
  server->on_rank0(take);
  first.to_rank0(Goodbye{2});
  second.to_rank0(Goodbye{3});
  all.get_future().get();
  server->on_rank0(nullptr);
  std::ranges::sort(heard);
  EXPECT_EQ(heard, (std::vector{1, 2, 3}));
}

TEST_F(ControlPlane, DeletesTheKeysOfAGenerationOnly) {
  const auto store = connect_store(environment);
  store->set("gen/1/a", "x");
  store->set("gen/1/b", "x");
  store->set("gen/10/a", "x");
  server->delete_keys("gen/1/");
  EXPECT_FALSE(store->check({"gen/1/a"}));
  EXPECT_FALSE(store->check({"gen/1/b"}));
  EXPECT_TRUE(store->check({"gen/10/a"}));
}

// A rank stopped by SIGSTOP reads nothing.
TEST_F(ControlPlane, DoesNotWaitForARankThatReadsNothing) {
  constexpr int kMessages = 200;
  PrepareCommand large;
  large.case_json = {{"text", std::string(std::size_t{1} << 20U, 'x')}};
  Mail stopped(environment);
  server->to_watchers(AbortCommand{0});
  EXPECT_EQ(std::get<AbortCommand>(stopped.receive_watch(1)).generation, 0);
  for (int i = 0; i < kMessages; ++i) server->to_watchers(large);
  Mail other(environment);
  server->to_compute(ExitCommand{});
  EXPECT_TRUE(std::holds_alternative<ExitCommand>(other.receive_compute(0)));
  for (int i = 0; i < kMessages; ++i) {
    EXPECT_TRUE(std::holds_alternative<PrepareCommand>(stopped.receive_watch(1)));
  }
}

// The stranger may be a port scanner or a worker of another version.
TEST_F(ControlPlane, HangsUpOnAStranger) {
  const auto text = connect_store(environment)->get("cp-pool/mail-port");
  std::string why;
  const auto port = static_cast<std::uint16_t>(std::stoi(std::string(text.begin(), text.end())));
  const int fd = connect_within({"127.0.0.1", port}, std::chrono::seconds(20), why);
  ASSERT_GE(fd, 0) << why;
  EXPECT_EQ(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
  char answer = 0;
  EXPECT_LE(recv(fd, &answer, 1, 0), 0);
  close(fd);
  Mail receiver(environment);
  server->to_compute(ExitCommand{});
  EXPECT_TRUE(std::holds_alternative<ExitCommand>(receiver.receive_compute(0)));
}

TEST_F(ControlPlane, AReceiverHearsAtOnceThatTheServerIsGone) {
  Mail receiver(environment);
  auto received = std::async(std::launch::async, [&] { return receiver.receive_compute(0); });
  server.reset();
  EXPECT_THROW(received.get(), ControlPlaneError);
}

}  // namespace
}  // namespace cp_pool
