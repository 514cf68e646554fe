#include "worker/tcp.h"

#include <system_error>
#include <unistd.h>

#include <gtest/gtest.h>

#include "worker/protocol/host_resources.h"

namespace cp_pool {
namespace {

// All of 127.0.0.0/8 are addresses of this host.
bool answers(const char* address, int listening) {
  std::string why;
  return static_cast<bool>(connect_within({address, port_of(listening)}, std::chrono::seconds(20), why));
}

TEST(Listen, IsReachedAtItsAddressAlone) {
  const int first = listen_at("127.0.0.1", 0, false);
  const int second = listen_beside(first);
  EXPECT_NE(port_of(first), port_of(second));
  for (const int fd : {first, second}) {
    EXPECT_TRUE(answers("127.0.0.1", fd));
    EXPECT_FALSE(answers("127.0.0.2", fd));
    for (const std::string& own : protocol::own_addresses()) {
      if (own == "127.0.0.1") continue;
      EXPECT_FALSE(answers(own.c_str(), fd)) << own;
    }
  }
  close(first);
  close(second);
}

TEST(Listen, IsReachedEverywhereAtAnAddressThatIsNotOfThisHost) {
  const int fd = listen_at("192.0.2.1", 0, false);  // TEST-NET-1 of RFC 5737
  EXPECT_TRUE(answers("127.0.0.1", fd));
  EXPECT_TRUE(answers("127.0.0.2", fd));
  close(fd);
}

TEST(Listen, NamesThePortThatIsTaken) {
  const int taken = listen_at("127.0.0.1", 0, false);
  const int port = port_of(taken);
  try {
    listen_at("127.0.0.1", port_of(taken), false);
    FAIL() << "two sockets listen at one port";
  } catch (const std::system_error& error) {
    EXPECT_NE(std::string(error.what()).find("listening at 127.0.0.1 port " + std::to_string(port)), std::string::npos)
        << error.what();
  }
  close(taken);
}

}  // namespace
}  // namespace cp_pool
