#include "driver/ranks/driver_socket.h"

#include <map>
#include <system_error>

#include <asio/buffer.hpp>
#include <asio/connect.hpp>
#include <asio/read_until.hpp>
#include <asio/write.hpp>
#include <gmock/gmock.h>

namespace cp_pool {
namespace {

using asio::ip::tcp;
using namespace std::chrono_literals;
using namespace ::testing;

constexpr auto kPatience = 30s;

class Lifelines : public ::testing::Test {
 protected:
  void serve(const DriverSocket::Config& config) {
    server = std::make_unique<DriverSocket>(
        io, config,
        DriverSocket::Functions{
            .on_joined = [this](int rank, const lifeline::Joined& told) { joined.emplace(rank, told); },
            .on_silent = [this](int rank) { log.push_back("silent " + std::to_string(rank)); },
            .on_heard_again = [this](int rank) { log.push_back("heard " + std::to_string(rank)); },
            .on_closed = [this](
                             int rank,
                             const std::string& why) { log.push_back("closed " + std::to_string(rank) + ": " + why); },
            .on_stderr = [this](int rank, std::string_view bytes) { stderr_of[rank] += bytes; },
            .on_stderr_end = [this](int rank) { log.push_back("stderr end " + std::to_string(rank)); }});
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
  [[nodiscard]] std::string join(int rank, lifeline::Stream stream = lifeline::Stream::messages) const {
    return lifeline::line_of(lifeline::Event{lifeline::Joined{server->token(), rank, stream, "node7", 4321}});
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
  std::map<int, lifeline::Joined> joined;
  std::map<int, std::string> stderr_of;
  std::vector<std::string> log;
  std::map<const void*, std::string> unread;
};

TEST_F(Lifelines, ARankSaysWhoItIsAndIsAnswered) {
  serve({.world_size = 2});
  tcp::socket rank = connect();
  say(rank, join(1));
  EXPECT_EQ(hear(rank), R"({"order":"beat"})");
  ASSERT_TRUE(joined.contains(1));
  EXPECT_EQ(joined[1].host, "node7");
  EXPECT_EQ(joined[1].pid, 4321);
  EXPECT_EQ(joined[1].token, "") << "it goes no further";
  EXPECT_TRUE(server->ranks()[1].connected);
  EXPECT_FALSE(server->ranks()[0].connected);
  rank.close();
  run_until_log(1);
  EXPECT_THAT(log, ElementsAre("closed 1: it closed the connection"));
  EXPECT_FALSE(server->ranks()[1].connected);
  EXPECT_TRUE(server->ranks()[1].closed);
}

TEST_F(Lifelines, AConnectionWithoutTheTokenIsClosedAndLeavesNothing) {
  serve({.world_size = 2});
  std::string wrong = join(1);
  char& last = wrong[wrong.find(server->token()) + server->token().size() - 1];
  last = last == '0' ? '1' : '0';
  std::string shorter = join(1);
  shorter.erase(shorter.find(server->token()), 1);
  std::string other_rank = join(2);
  for (const std::string& line : {wrong, shorter, other_rank, join(-1), std::string("{\"event\":\"beat\"}\n"),
                                  std::string("GET / HTTP/1.1\r\n"), std::string("[]\n"), std::string("\n")}) {
    SCOPED_TRACE(line);
    tcp::socket stranger = connect();
    say(stranger, line);
    EXPECT_EQ(hear(stranger), "");
  }
  EXPECT_THAT(joined, IsEmpty());
  EXPECT_THAT(log, IsEmpty());
  EXPECT_THAT(server->token(), SizeIs(32));
}

TEST_F(Lifelines, HalfALineIsNoHello) {
  serve({.world_size = 2, .patience = 100ms});
  tcp::socket leaves = connect();
  const std::string line = join(1);
  say(leaves, line.substr(0, line.size() / 2));
  leaves.close();
  tcp::socket stays = connect();
  say(stays, line.substr(0, line.size() / 2));
  EXPECT_EQ(hear(stays), "") << "closed when its time is over";
  EXPECT_THAT(log, IsEmpty());
}

TEST_F(Lifelines, TwoHalvesOfALineAreAHello) {
  serve({.world_size = 2});
  tcp::socket late = connect();
  const std::string line = join(1);
  say(late, line.substr(0, 10));
  io.poll();
  say(late, line.substr(10));
  EXPECT_EQ(hear(late), R"({"order":"beat"})");
}

TEST_F(Lifelines, GarbageEndsTheConnectionThatItComesFrom) {
  serve({.world_size = 2});
  const std::string garbage(std::size_t{20} << 20U, 'x');
  tcp::socket stranger = connect();
  tcp::socket rank = connect();
  say(rank, join(0));
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
  say(other, join(1));
  EXPECT_EQ(hear(other), R"({"order":"beat"})") << "the others are served";
}

TEST_F(Lifelines, WhatARankSaysMustBeAMessage) {
  serve({.world_size = 2});
  tcp::socket rank = connect();
  say(rank,
      join(1) + "{\"event\":\"beat\"}\n{\"event\":\"of the future\"}\n{\"event\":\"ending\",\"exit_code\":\"x\"}\n");
  run_until_log(1);
  EXPECT_THAT(log, ElementsAre(HasSubstr("closed 1: it sent a line that is no message: ending: \"exit_code\"")));
}

TEST_F(Lifelines, StderrIsHandedOnAsItIs) {
  serve({.world_size = 2});
  tcp::socket rank = connect();
  const std::string bytes("words\n\0\xff{\"event\":\"beat\"}\n", 24);
  say(rank, join(1, lifeline::Stream::errors) + bytes);
  run_until([&] { return stderr_of[1].size() >= bytes.size(); });
  say(rank, "last");
  rank.close();
  run_until_log(1);
  EXPECT_EQ(stderr_of[1], bytes + "last");
  EXPECT_THAT(log, ElementsAre("stderr end 1"));
}

TEST_F(Lifelines, ASecondProcessOfARankIsRefused) {
  serve({.world_size = 2});
  tcp::socket first = connect();
  say(first, join(1));
  EXPECT_EQ(hear(first), R"({"order":"beat"})");
  tcp::socket second = connect();
  say(second, join(1));
  EXPECT_EQ(hear(second), "");
  EXPECT_TRUE(server->ranks()[1].connected);
  first.close();
  run_until_log(1);
  tcp::socket third = connect();
  say(third, join(1));
  EXPECT_EQ(hear(third), "") << "what has closed does not come back";
  EXPECT_THAT(log, SizeIs(1));
}

TEST_F(Lifelines, SilenceIsToldOnce) {
  serve({.world_size = 2, .silence = 300ms});
  tcp::socket rank = connect();
  say(rank, join(1));
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
  serve({.world_size = 1, .silence = 300ms, .beat_every = 10ms});
  tcp::socket rank = connect();
  say(rank, join(0));
  run_until([&] { return joined.contains(0); });
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
  serve({.world_size = 3});
  tcp::socket zero = connect();
  tcp::socket early = connect();
  say(early, join(1));
  EXPECT_EQ(hear(early), R"({"order":"beat"})");
  const lifeline::Rendezvous where{"node7", {"10.1.2.3", "fd00::7"}, 4711};
  const lifeline::Rendezvous another{"node7", {"10.9.9.9"}, 4712};
  say(early, lifeline::line_of(lifeline::Event{another}));
  say(zero, join(0) + lifeline::line_of(lifeline::Event{where}) + lifeline::line_of(lifeline::Event{another}));
  const std::string expected = lifeline::line_of(lifeline::Order{where});
  EXPECT_EQ(hear_other_than_beats(early) + "\n", expected);
  tcp::socket late = connect();
  say(late, join(2));
  EXPECT_EQ(hear_other_than_beats(late) + "\n", expected);
}

TEST_F(Lifelines, OrdersReachTheRankThatTheyAreFor) {
  serve({.world_size = 2});
  tcp::socket zero = connect();
  tcp::socket one = connect();
  say(zero, join(0));
  say(one, join(1));
  run_until([&] { return joined.size() == 2; });
  server->show_stack(1);
  server->end_all();
  EXPECT_EQ(hear_other_than_beats(one), R"({"order":"show_stack"})");
  EXPECT_EQ(hear_other_than_beats(one), R"({"order":"end"})");
  EXPECT_EQ(hear_other_than_beats(zero), R"({"order":"end"})");
  say(one, lifeline::line_of(lifeline::Event{lifeline::Ending{75}}));
  run_until([&] { return server->ranks()[1].ending.has_value(); });
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

}  // namespace
}  // namespace cp_pool
