#include "worker/mail_hub.h"

#include <arpa/inet.h>
#include <cstdlib>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

// Lets a rank connect while this process may open no further file descriptor.
[[noreturn]] void accept_without_descriptors() {
  const MailHub hub;
  const int rank = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const rlimit none{static_cast<rlim_t>(rank) + 1, static_cast<rlim_t>(rank) + 1};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(hub.port()));
  if (setrlimit(RLIMIT_NOFILE, &none) != 0) std::abort();
  if (connect(rank, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
  for (;;) pause();  // the hub's thread ends the process
}

TEST(MailHub, SaysThatItHasNoDescriptorLeftForARank) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(accept_without_descriptors(), testing::ExitedWithCode(1), "no file descriptor left.*ulimit -n");
}

}  // namespace
}  // namespace cp_pool
