#include <fcntl.h>
#include <filesystem>
#include <future>
#include <iterator>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "worker/rank_outcome.h"

namespace cp_pool {
namespace {

std::int64_t listed(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return std::distance(begin(entries), end(entries));
}

TEST(Hygiene, CountsDescriptorsAndThreadsAsProcListsThem) {
  const protocol::Hygiene before = measure_hygiene(3);
  EXPECT_EQ(before.rank, 3);
  EXPECT_EQ(before.fds, listed("/proc/self/fd") - 1);
  EXPECT_EQ(before.threads, listed("/proc/self/task"));
  EXPECT_GT(before.rss_kib, 0);

  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::promise<void> go;
  std::thread waits([&] { go.get_future().wait(); });
  const protocol::Hygiene after = measure_hygiene(3);
  go.set_value();
  waits.join();
  close(fd);
  EXPECT_EQ(after.fds, before.fds + 1);
  EXPECT_EQ(after.threads, before.threads + 1);
}

}  // namespace
}  // namespace cp_pool
