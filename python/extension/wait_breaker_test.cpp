#include "python/extension/wait_breaker.h"

#include <chrono>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "worker/tcp.h"

namespace cp_pool {
namespace {

// A connection between two sockets of this process.
struct TcpConnection {
  explicit TcpConnection(int listening) {
    std::string why;
    connected = connect_within({"127.0.0.1", port_of(listening)}, std::chrono::seconds(20), why);
    pollfd ready{listening, POLLIN, 0};
    if (poll(&ready, 1, -1) == 1) accepted.reset(accept(listening, nullptr, nullptr));
  }
  [[nodiscard]] bool open() const {
    char byte = 'x';
    return send(connected.get(), &byte, 1, MSG_NOSIGNAL) == 1 && recv(accepted.get(), &byte, 1, 0) == 1;
  }

  UniqueFd connected;
  UniqueFd accepted;
};

TEST(OwnSockets, ShutsOnlyTheConnectionsOfOthers) {
  const int own_listener = listen_at("127.0.0.1", 0, true);
  const TcpConnection own(own_listener);
  OwnSockets sockets;
  sockets.remember_own();
  const int listener = listen_at("127.0.0.1", 0, true);
  const TcpConnection others(listener);
  ASSERT_TRUE(own.open());
  ASSERT_TRUE(others.open());
  sockets.shut_others();
  EXPECT_TRUE(own.open());
  EXPECT_FALSE(others.open());
  EXPECT_TRUE(TcpConnection(listener).open()) << "a listening socket of others was shut";
  close(listener);
  close(own_listener);
}

TEST(OwnSockets, KeepsAConnectionThatAnOwnSocketAcceptsLater) {
  const int own_listener = listen_at("127.0.0.1", 0, true);
  OwnSockets sockets;
  sockets.remember_own();
  const TcpConnection late(own_listener);
  sockets.shut_others();  // also the end that connects, since it is in this process
  const char byte = 'x';
  EXPECT_EQ(send(late.accepted.get(), &byte, 1, MSG_NOSIGNAL), 1);
  close(own_listener);
}

}  // namespace
}  // namespace cp_pool
