#include "driver/ranks/driver_socket.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <asio/buffer.hpp>
#include <asio/connect.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read_until.hpp>
#include <asio/write.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using asio::ip::tcp;
using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr auto kPatience = 30s;

class Lifelines : public ::testing::Test {
 protected:
  void serve(DriverSocket::Config config) {
    server = std::make_unique<DriverSocket>(
        io, std::move(config),
        DriverSocket::Functions{
            .on_hello = [this](int rank, const lifeline::Hello& hello) { hellos.emplace(rank, hello); },
            .on_silent = [this](int rank,
                                std::chrono::milliseconds) { log.push_back("silent " + std::to_string(rank)); },
            .on_heard_again = [this](int rank) { log.push_back("heard " + std::to_string(rank)); },
            .on_ending =
                [this](int rank, int code) {
                  log.push_back("ending " + std::to_string(rank) + " " + std::to_string(code));
                },
            .on_closed = [this](
                             int rank,
                             const std::string& why) { log.push_back("closed " + std::to_string(rank) + ": " + why); },
            .on_stderr = [this](int rank, std::string_view bytes) { stderr_of[rank] += bytes; },
            .on_stderr_end = [this](int rank) { log.push_back("stderr end " + std::to_string(rank)); },
            .on_rendezvous =
                [this](const lifeline::Rendezvous& where) {
                  log.push_back("rendezvous " + where.addresses.front() + " " + std::to_string(where.port));
                }});
  }
  static DriverSocket::Config on_loopback(int world_size) {
    DriverSocket::Config config;
    config.world_size = world_size;
    config.listen = {"127.0.0.1"};
    return config;
  }

  void run_until(const std::function<bool()>& done) {
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (!done() && std::chrono::steady_clock::now() < give_up) io.run_one_for(100ms);
    ASSERT_TRUE(done());
  }
  void run_until_log(std::size_t size) {
    run_until([&] { return log.size() >= size; });
  }

  tcp::socket connect() {
    const lifeline::Endpoint endpoint = server->endpoints().front();
    tcp::socket socket(clients);
    socket.connect({asio::ip::make_address(endpoint.host), endpoint.port});
    return socket;
  }
  static void say(tcp::socket& socket, std::string_view bytes) {
    std::error_code gone;  // the server may have closed it by now
    asio::write(socket, asio::buffer(bytes), gone);
  }
  [[nodiscard]] std::string hello(int rank, lifeline::Stream stream = lifeline::Stream::messages) const {
    return lifeline::line_of(lifeline::Event{lifeline::Hello{server->token(), rank, stream, "node7", 4321, 99}});
  }
  // Reads the next line while the server runs; empty at the end of the connection.
  std::string hear(tcp::socket& socket) {
    std::string& rest = unread[&socket];
    bool done = false;
    asio::async_read_until(socket, asio::dynamic_buffer(rest), '\n',
                           [&](std::error_code, std::size_t) { done = true; });
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (!done && std::chrono::steady_clock::now() < give_up) {
      io.poll();
      clients.restart();
      clients.run_for(2ms);
    }
    const std::size_t newline = rest.find('\n');
    if (newline == std::string::npos) return "";
    std::string line = rest.substr(0, newline);
    rest.erase(0, newline + 1);
    return line;
  }
  std::string hear_other_than_beats(tcp::socket& socket) {
    for (;;) {
      std::string line = hear(socket);
      if (line != R"({"order":"beat"})") return line;
    }
  }

  asio::io_context io;
  asio::io_context clients;
  std::unique_ptr<DriverSocket> server;
  std::map<int, lifeline::Hello> hellos;
  std::map<int, std::string> stderr_of;
  std::vector<std::string> log;
  std::map<const void*, std::string> unread;
};

TEST_F(Lifelines, ARankSaysWhoItIsAndIsAnswered) {
  serve(on_loopback(2));
  tcp::socket rank = connect();
  say(rank, hello(1));
  EXPECT_EQ(hear(rank), R"({"order":"beat"})");
  ASSERT_TRUE(hellos.contains(1));
  EXPECT_EQ(hellos[1].host, "node7");
  EXPECT_EQ(hellos[1].pid, 4321);
  EXPECT_EQ(hellos[1].start_time, 99);
  EXPECT_EQ(hellos[1].token, "") << "it goes no further";
  EXPECT_TRUE(server->ranks()[1].connected);
  EXPECT_FALSE(server->ranks()[0].connected);
  rank.close();
  run_until_log(1);
  EXPECT_THAT(log, ElementsAre("closed 1: it closed the connection"));
  EXPECT_FALSE(server->ranks()[1].connected);
  EXPECT_TRUE(server->ranks()[1].closed);
}

TEST_F(Lifelines, AConnectionWithoutTheTokenIsClosedAndLeavesNothing) {
  serve(on_loopback(2));
  std::string wrong = hello(1);
  char& last = wrong[wrong.find(server->token()) + server->token().size() - 1];
  last = last == '0' ? '1' : '0';
  std::string shorter = hello(1);
  shorter.erase(shorter.find(server->token()), 1);
  std::string other_rank = hello(2);
  for (const std::string& line : {wrong, shorter, other_rank, hello(-1), std::string("{\"event\":\"beat\"}\n"),
                                  std::string("GET / HTTP/1.1\r\n"), std::string("[]\n"), std::string("\n")}) {
    SCOPED_TRACE(line);
    tcp::socket stranger = connect();
    say(stranger, line);
    EXPECT_EQ(hear(stranger), "");
  }
  EXPECT_THAT(hellos, IsEmpty());
  EXPECT_THAT(log, IsEmpty());
  EXPECT_THAT(server->token(), SizeIs(32));
}

TEST_F(Lifelines, HalfALineIsNoHello) {
  DriverSocket::Config config = on_loopback(2);
  config.patience = 100ms;
  serve(config);
  tcp::socket leaves = connect();
  const std::string line = hello(1);
  say(leaves, line.substr(0, line.size() / 2));
  leaves.close();
  tcp::socket stays = connect();
  say(stays, line.substr(0, line.size() / 2));
  EXPECT_EQ(hear(stays), "") << "closed when its time is over";
  EXPECT_THAT(log, IsEmpty());
}

TEST_F(Lifelines, TwoHalvesOfALineAreAHello) {
  serve(on_loopback(2));
  tcp::socket late = connect();
  const std::string line = hello(1);
  say(late, line.substr(0, 10));
  io.poll();
  say(late, line.substr(10));
  EXPECT_EQ(hear(late), R"({"order":"beat"})");
}

TEST_F(Lifelines, GarbageEndsTheConnectionThatItComesFrom) {
  serve(on_loopback(2));
  const std::string garbage(std::size_t{20} << 20U, 'x');
  tcp::socket stranger = connect();
  tcp::socket rank = connect();
  say(rank, hello(0));
  EXPECT_EQ(hear(rank), R"({"order":"beat"})");
  for (tcp::socket* const socket : {&stranger, &rank}) {
    bool done = false;
    asio::async_write(*socket, asio::buffer(garbage), [&](std::error_code, std::size_t) { done = true; });
    clients.restart();
    run_until([&] {
      clients.poll();
      return done;
    });
  }
  run_until_log(1);
  EXPECT_THAT(log, ElementsAre("closed 0: a line of more than 8192 bytes"));
  tcp::socket other = connect();
  say(other, hello(1));
  EXPECT_EQ(hear(other), R"({"order":"beat"})") << "the others are served";
}

TEST_F(Lifelines, WhatARankSaysMustBeAMessage) {
  serve(on_loopback(2));
  tcp::socket rank = connect();
  say(rank,
      hello(1) + "{\"event\":\"beat\"}\n{\"event\":\"of the future\"}\n{\"event\":\"ending\",\"exit_code\":\"x\"}\n");
  run_until_log(1);
  EXPECT_THAT(log, ElementsAre(HasSubstr("closed 1: it sent a line that is no message: ending: \"exit_code\"")));
}

TEST_F(Lifelines, StderrIsHandedOnAsItIs) {
  serve(on_loopback(2));
  tcp::socket rank = connect();
  const std::string bytes("words\n\0\xff{\"event\":\"beat\"}\n", 24);
  say(rank, hello(1, lifeline::Stream::errors) + bytes);
  run_until([&] { return stderr_of[1].size() >= bytes.size(); });
  say(rank, "last");
  rank.close();
  run_until_log(1);
  EXPECT_EQ(stderr_of[1], bytes + "last");
  EXPECT_THAT(log, ElementsAre("stderr end 1"));
}

TEST_F(Lifelines, ASecondProcessOfARankIsRefused) {
  serve(on_loopback(2));
  tcp::socket first = connect();
  say(first, hello(1));
  EXPECT_EQ(hear(first), R"({"order":"beat"})");
  tcp::socket second = connect();
  say(second, hello(1));
  EXPECT_EQ(hear(second), "");
  EXPECT_TRUE(server->ranks()[1].connected);
  first.close();
  run_until_log(1);
  tcp::socket third = connect();
  say(third, hello(1));
  EXPECT_EQ(hear(third), "") << "what has closed does not come back";
  EXPECT_THAT(log, SizeIs(1));
}

TEST_F(Lifelines, SilenceIsToldOnce) {
  DriverSocket::Config config = on_loopback(2);
  config.silence = 300ms;
  serve(config);
  tcp::socket rank = connect();
  say(rank, hello(1));
  run_until_log(1);
  EXPECT_THAT(log, ElementsAre("silent 1"));
  EXPECT_TRUE(server->ranks()[1].silent);
  EXPECT_GE(server->silence_of(1), 300ms);
  const auto until = std::chrono::steady_clock::now() + 700ms;
  run_until([&] { return std::chrono::steady_clock::now() > until; });
  EXPECT_THAT(log, SizeIs(1));
  say(rank, "{\"event\":\"beat\"}\n");
  run_until_log(2);
  EXPECT_EQ(log[1], "heard 1");
  EXPECT_FALSE(server->ranks()[1].silent);
}

TEST_F(Lifelines, ABusyDriverTakesNoRankForSilent) {
  DriverSocket::Config config = on_loopback(1);
  config.silence = 300ms;
  config.beat_every = 10ms;
  serve(config);
  tcp::socket rank = connect();
  say(rank, hello(0));
  run_until([&] { return hellos.contains(0); });
  // This thread does not run the server for a while, and only reads the beats that the server still sends.
  std::string heard;
  const auto busy_until = std::chrono::steady_clock::now() + 900ms;
  int beats = 0;
  while (std::chrono::steady_clock::now() < busy_until || beats <= 5) {
    const std::size_t size = asio::read_until(rank, asio::dynamic_buffer(heard), '\n');
    heard.erase(0, size);
    ++beats;
  }
  say(rank, "{\"event\":\"beat\"}\n");
  io.poll();
  EXPECT_THAT(log, IsEmpty());
}

TEST_F(Lifelines, Rank0TellsTheOthersWhereItIs) {
  serve(on_loopback(3));
  tcp::socket zero = connect();
  tcp::socket early = connect();
  say(early, hello(1));
  EXPECT_EQ(hear(early), R"({"order":"beat"})");
  const lifeline::Rendezvous where{"node7", {"10.1.2.3", "fd00::7"}, 4711};
  const lifeline::Rendezvous another{"node7", {"10.9.9.9"}, 4712};
  say(early, lifeline::line_of(lifeline::Event{another}));
  say(zero, hello(0) + lifeline::line_of(lifeline::Event{where}) + lifeline::line_of(lifeline::Event{another}));
  const std::string expected = lifeline::line_of(lifeline::Order{where});
  EXPECT_EQ(hear_other_than_beats(early) + "\n", expected);
  tcp::socket late = connect();
  say(late, hello(2));
  EXPECT_EQ(hear_other_than_beats(late) + "\n", expected);
  EXPECT_THAT(log, ElementsAre("rendezvous 10.1.2.3 4711")) << "of rank 0, once";
}

TEST_F(Lifelines, OrdersReachTheRankThatTheyAreFor) {
  serve(on_loopback(2));
  tcp::socket zero = connect();
  tcp::socket one = connect();
  say(zero, hello(0));
  say(one, hello(1));
  run_until([&] { return hellos.size() == 2; });
  server->show_stack(1);
  server->end_all();
  EXPECT_EQ(hear_other_than_beats(one), R"({"order":"show_stack"})");
  EXPECT_EQ(hear_other_than_beats(one), R"({"order":"end"})");
  EXPECT_EQ(hear_other_than_beats(zero), R"({"order":"end"})");
  say(one, lifeline::line_of(lifeline::Event{lifeline::Ending{75}}));
  run_until_log(1);
  EXPECT_THAT(log, ElementsAre("ending 1 75"));
  EXPECT_EQ(server->ranks()[1].ending, 75);
  server.reset();
  EXPECT_EQ(hear_other_than_beats(one), "") << "its end closes all";
}

TEST_F(Lifelines, EveryAddressOfTheHostIsOffered) {
  serve({});
  const std::vector<lifeline::Endpoint> endpoints = server->endpoints();
  ASSERT_THAT(endpoints, ::testing::Contains(::testing::Field(&lifeline::Endpoint::host, "127.0.0.1")));
  for (const lifeline::Endpoint& endpoint : endpoints) {
    SCOPED_TRACE(lifeline::to_string(endpoint));
    tcp::socket socket(clients);
    std::error_code error;
    socket.connect({asio::ip::make_address(endpoint.host), endpoint.port}, error);
    EXPECT_FALSE(error) << error.message();
  }
  const auto variables = server->variables();
  ASSERT_THAT(variables, SizeIs(2));
  EXPECT_EQ(variables[0].first, "CP_POOL_LIFELINE");
  EXPECT_EQ(lifeline::parse_endpoints(variables[0].second), endpoints);
  EXPECT_EQ(variables[1], std::pair(std::string("CP_POOL_LIFELINE_TOKEN"), server->token()));
}

TEST_F(Lifelines, AnAddressThatItCannotListenOnIsNamed) {
  DriverSocket::Config config = on_loopback(1);
  config.listen = {"192.0.2.1"};  // of no host (RFC 5737)
  EXPECT_THAT([&] { const DriverSocket there(io, config, {}); },
              ::testing::ThrowsMessage<std::system_error>(StartsWith("lifelines: cannot listen on 192.0.2.1")));
  config.listen = {"here"};
  EXPECT_THAT([&] { const DriverSocket there(io, config, {}); },
              ::testing::ThrowsMessage<std::system_error>(HasSubstr("\"here\"")));
}

}  // namespace
}  // namespace cp_pool
