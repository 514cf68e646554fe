#include "worker/control_plane.h"

#include <arpa/inet.h>
#include <future>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace cp_pool {
namespace {

// Where a server can listen: a socket as the driver hands it down.
protocol::RankEnvironment listening_environment() {
  protocol::RankEnvironment out;
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
  Mail sender(environment);
  Mail receiver(environment);
  for (int generation = 0; generation < 100; ++generation) sender.to_compute(1, RebuildCommand{generation});
  sender.to_compute(0, ExitCommand{});
  sender.to_watcher(1, AbortCommand{7});
  for (int generation = 0; generation < 100; ++generation) {
    EXPECT_EQ(std::get<RebuildCommand>(receiver.receive_compute(1)).generation, generation);
  }
  EXPECT_TRUE(std::holds_alternative<ExitCommand>(receiver.receive_compute(0)));
  EXPECT_EQ(std::get<AbortCommand>(receiver.receive_watch(1)).generation, 7);
}

TEST_F(ControlPlane, WakesAReceiverThatWaits) {
  Mail receiver(environment);
  auto received = std::async(std::launch::async, [&] { return receiver.receive_rank0(); });
  Mail sender(environment);
  sender.to_rank0(Goodbye{3});
  EXPECT_EQ(std::get<Goodbye>(received.get()).rank, 3);
}

TEST_F(ControlPlane, DeletesTheKeysOfAGenerationOnly) {
  Mail mail(environment);
  mail.store()->set("gen/1/a", "x");
  mail.store()->set("gen/1/b", "x");
  mail.store()->set("gen/10/a", "x");
  mail.delete_keys("gen/1/");
  EXPECT_FALSE(mail.store()->check({"gen/1/a"}));
  EXPECT_FALSE(mail.store()->check({"gen/1/b"}));
  EXPECT_TRUE(mail.store()->check({"gen/10/a"}));
}

TEST_F(ControlPlane, AReceiverHearsAtOnceThatTheServerIsGone) {
  Mail receiver(environment);
  auto received = std::async(std::launch::async, [&] { return receiver.receive_compute(0); });
  server.reset();
  EXPECT_THROW(received.get(), ControlPlaneError);
}

}  // namespace
}  // namespace cp_pool
