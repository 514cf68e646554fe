#include "worker/control_plane.h"

#include <algorithm>
#include <cstdlib>
#include <future>
#include <span>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "worker/testing/listening_environment.h"

namespace cp_pool {
namespace {

using test::listening_environment;
using ComputeClient = MessageClient<ComputeCommand>;
using ControlClient = MessageClient<ControlCommand>;

protocol::RankEnvironment of_rank(int rank, protocol::RankEnvironment environment) {
  environment.rank = rank;
  return environment;
}

class ControlPlane : public testing::Test {
 protected:
  protocol::RankEnvironment environment = listening_environment(2);
  std::optional<MessageServer> server{std::in_place, environment};
};

TEST_F(ControlPlane, KeepsTheOrderOfASenderAndTheBoxesApart) {
  for (int generation = 0; generation < 100; ++generation) server->to_compute(RebuildCommand{generation});
  server->to_control_threads(AbortCommand{7});
  server->to_compute(ExitCommand{});
  for (const int rank : {0, 1}) {
    ControlClient control(of_rank(rank, environment));
    EXPECT_EQ(std::get<AbortCommand>(control.receive()).generation, 7);
    ComputeClient compute(of_rank(rank, environment));
    for (int generation = 0; generation < 100; ++generation) {
      EXPECT_EQ(std::get<RebuildCommand>(compute.receive()).generation, generation);
    }
    EXPECT_TRUE(std::holds_alternative<ExitCommand>(compute.receive()));
  }
}

TEST_F(ControlPlane, WakesAReceiverThatWaits) {
  ComputeClient receiver(environment);
  auto received = std::async(std::launch::async, [&] { return receiver.receive(); });
  server->to_compute(RebuildCommand{3});
  EXPECT_EQ(std::get<RebuildCommand>(received.get()).generation, 3);
}

TEST_F(ControlPlane, WaitsForACommandUntilTheDeadlineAlone) {
  ComputeClient receiver(environment);
  const auto soon = [](std::chrono::milliseconds limit) { return std::chrono::steady_clock::now() + limit; };
  EXPECT_FALSE(receiver.receive_until(soon(std::chrono::milliseconds(20))));
  EXPECT_FALSE(receiver.receive_until(soon(std::chrono::milliseconds(-20))));
  server->to_compute(RebuildCommand{3});
  const auto command = receiver.receive_until(soon(std::chrono::seconds(60)));
  ASSERT_TRUE(command);
  EXPECT_EQ(std::get<RebuildCommand>(*command).generation, 3);
}

TEST_F(ControlPlane, GivesRank0WhatRanksSayAlsoWhatCameBeforeItListened) {
  ComputeClient first(environment);
  ComputeClient second(environment);
  std::vector<std::int64_t> heard;
  std::promise<void> all;
  first.to_rank0(CaseFailing{1});
  const auto take = [&](const Bytes& message) {
    heard.push_back(std::get<CaseFailing>(decode<RankMessage>(message)).seq);
    if (heard.size() == 3) all.set_value();
  };
  server->on_rank0(take);
  first.to_rank0(CaseFailing{2});
  second.to_rank0(CaseFailing{3});
  all.get_future().get();
  server->on_rank0(nullptr);
  std::ranges::sort(heard);
  EXPECT_EQ(heard, (std::vector<std::int64_t>{1, 2, 3}));
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
  ControlClient stopped(of_rank(1, environment));
  server->to_control_threads(AbortCommand{0});
  EXPECT_EQ(std::get<AbortCommand>(stopped.receive()).generation, 0);
  for (int i = 0; i < kMessages; ++i) server->to_control_threads(large);
  ComputeClient other(environment);
  server->to_compute(ExitCommand{});
  EXPECT_TRUE(std::holds_alternative<ExitCommand>(other.receive()));
  for (int i = 0; i < kMessages; ++i) {
    EXPECT_TRUE(std::holds_alternative<PrepareCommand>(stopped.receive()));
  }
}

std::uint16_t message_port(const protocol::RankEnvironment& environment) {
  const auto text = connect_store(environment)->get("cp-pool/message-port");
  return static_cast<std::uint16_t>(std::stoi(std::string(text.begin(), text.end())));
}

// The stranger may be a port scanner, a worker of another version, or another user of the machine.
TEST_F(ControlPlane, HangsUpOnAStranger) {
  for (const Bytes& bytes : {Bytes{'G', 'E', 'T', ' ', '/', ' ', 'H', 'T', 'T', 'P', '/', '1', '.', '1', '\r', '\n'},
                             frame_of(encode(ComputeCommand{RebuildCommand{666}}))}) {
    std::string why;
    const UniqueFd fd = connect_within({"127.0.0.1", message_port(environment)}, std::chrono::seconds(20), why);
    ASSERT_TRUE(fd) << why;
    EXPECT_TRUE(send_all(fd.get(), std::as_bytes(std::span{bytes})));
    shutdown(fd.get(), SHUT_WR);
    char answer = 0;
    EXPECT_LE(recv(fd.get(), &answer, 1, 0), 0);
  }
  ComputeClient receiver(environment);
  server->to_compute(ExitCommand{});
  EXPECT_TRUE(std::holds_alternative<ExitCommand>(receiver.receive()));
}

TEST(ControlPlaneToken, OfTheEnvironmentIsNotInTheStore) {
  protocol::RankEnvironment environment = listening_environment(2);
  environment.token = "00112233445566778899aabbccddeeff";
  MessageServer server(environment);
  EXPECT_FALSE(connect_store(environment)->check({"cp-pool/token"}));
  ComputeClient rank(environment);
  server.to_compute(RebuildCommand{1});
  EXPECT_EQ(std::get<RebuildCommand>(rank.receive()).generation, 1);
  environment.token.back() = '0';
  EXPECT_THROW(ComputeClient(environment).receive(), ControlPlaneError);
}

TEST(ControlPlaneToken, IsMadeByRank0IfTheEnvironmentHasNone) {
  const protocol::RankEnvironment environment = listening_environment(2);
  const MessageServer one(environment);
  const auto first = connect_store(environment)->get("cp-pool/token");
  const protocol::RankEnvironment of_another_pool = listening_environment(2);
  const MessageServer other(of_another_pool);
  EXPECT_EQ(first.size(), 32U);
  EXPECT_NE(connect_store(of_another_pool)->get("cp-pool/token"), first);
}

TEST(ControlPlaneStore, IsTorchrunsIfItServesOneAtTheMastersPort) {
  const protocol::RankEnvironment of_torchrun = listening_environment(2);
  const MessageServer torchrun(of_torchrun);  // its store stands for that of torchrun's agent
  protocol::RankEnvironment environment;
  environment.master_addr = "127.0.0.1";
  environment.master_port = of_torchrun.master_port;
  environment.world_size = 2;
  EXPECT_THROW(MessageServer{environment}, ControlPlaneError) << "the port is taken";
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  {
    MessageServer server(environment);
    ComputeClient rank(environment);
    server.to_compute(RebuildCommand{5});
    EXPECT_EQ(std::get<RebuildCommand>(rank.receive()).generation, 5);
  }
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
}

// All of 127.0.0.0/8 are addresses of this host.
TEST(ControlPlaneAddress, IsTheMastersAlone) {
  protocol::RankEnvironment environment;
  environment.master_addr = "127.0.0.1";
  const MessageServer server(environment);
  environment.master_port = static_cast<std::uint16_t>(server.port());
  for (const std::uint16_t port : {environment.master_port, message_port(environment)}) {
    std::string why;
    EXPECT_TRUE(connect_within({"127.0.0.1", port}, std::chrono::seconds(20), why)) << why;
    EXPECT_FALSE(connect_within({"127.0.0.2", port}, std::chrono::seconds(20), why)) << port;
  }
}

TEST_F(ControlPlane, AReceiverHearsAtOnceThatTheServerIsGone) {
  ComputeClient receiver(environment);
  auto received = std::async(std::launch::async, [&] { return receiver.receive(); });
  server.reset();
  EXPECT_THROW(received.get(), ControlPlaneError);
}

}  // namespace
}  // namespace cp_pool
