// A driver that is killed with SIGKILL takes its ranks with it, at whatever moment it is killed.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <ostream>
#include <poll.h>
#include <random>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "driver/os/process_settings.h"
#include "driver/os/process_tree.h"
#include "driver/os/spawn.h"

namespace cp_pool::driver_test {
namespace {

// The kernel kills the ranks with their driver. A rank that still lives after this time will never end.
constexpr std::chrono::seconds kMostTime{20};

struct Moment {
  std::string name;
  std::vector<std::string> arguments;
  std::string when;  // the line after which the driver is killed
};
// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for PrintTo by this name
void PrintTo(const Moment& moment, std::ostream* out) {
  *out << moment.name;
}

class DriverDeath : public testing::TestWithParam<Moment> {};

std::string read_line(int fd) {
  std::string line;
  for (char c = 0; ::read(fd, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

SpawnedProcess spawn_driver(const std::vector<std::string>& arguments, int stdout_fd) {
  SpawnRequest request;
  request.argv = {CP_POOL_DRIVER_PROCESS};
  request.argv.insert(request.argv.end(), arguments.begin(), arguments.end());
  request.stdout_fd = stdout_fd;
  return spawn(request);
}

TEST_P(DriverDeath, LeavesNoRankBehind) {
  Pipe out = make_pipe();
  const SpawnedProcess driver = spawn_driver(GetParam().arguments, out.write.get());
  out.write.reset();

  std::vector<UniqueFd> ranks;
  for (std::string line; (line = read_line(out.read.get())) != GetParam().when;) {
    ASSERT_NE(line, "") << "the driver ended early";
    if (!line.starts_with("pid ")) continue;
    ranks.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, std::stoi(line.substr(4)), 0)));
    ASSERT_TRUE(ranks.back());
  }
  ASSERT_EQ(ranks.size(), 4U);
  ::kill(driver.pid, SIGKILL);

  const auto limit = std::chrono::steady_clock::now() + kMostTime;
  for (const UniqueFd& rank : ranks) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    pollfd exited{rank.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&exited, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0))), 1) << "a rank lives on";
  }
  ::waitpid(driver.pid, nullptr, 0);
}

// Orphans become children of this process. Reaps those that have ended and returns the others.
std::vector<ProcessInfo> living_descendants() {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  std::vector<ProcessInfo> out = list_descendants(::getpid());
  std::erase_if(out, [](const ProcessInfo& process) { return process.dead(); });
  return out;
}

void kill_and_expect_nothing_left(const SpawnedProcess& driver) {
  ::kill(driver.pid, SIGKILL);
  const auto limit = std::chrono::steady_clock::now() + kMostTime;
  // A single look at /proc may miss a process that changes its parent at that moment.
  int clean = 0;
  while (clean < 2 && std::chrono::steady_clock::now() < limit) {
    clean = living_descendants().empty() ? clean + 1 : 0;
    std::this_thread::yield();
  }
  EXPECT_EQ(clean, 2) << "a process lives on";
}

TEST(KilledDriver, LeavesNoRankBehindAtAnyMoment) {
  using std::chrono::microseconds;
  using Clock = std::chrono::steady_clock;
  std::mt19937 random(7);
  const ProcessSettings subreaper;
  // Measures how long this machine takes to start the driver and its four ranks.
  const auto start = Clock::now();
  const SpawnedProcess first = spawn_driver({"hang"}, -1);
  while (list_descendants(::getpid()).size() < 5) std::this_thread::yield();
  const auto until_all = std::chrono::duration_cast<microseconds>(Clock::now() - start);
  kill_and_expect_nothing_left(first);
  for (int i = 0; i < 30; ++i) {
    SCOPED_TRACE("try " + std::to_string(i));
    const SpawnedProcess driver = spawn_driver({"hang"}, -1);
    // The moment is random, from the first instructions of the driver to a running case: no event marks the moments in
    // between.
    std::this_thread::sleep_for(microseconds(random() % (3 * until_all.count())));
    kill_and_expect_nothing_left(driver);
  }
}

INSTANTIATE_TEST_SUITE_P(Moments, DriverDeath,
                         testing::Values(Moment{"starting", {"pass", "--start=never_ready"}, "spawned"},
                                         Moment{"running", {"hang"}, "started"},
                                         Moment{"stopped", {"sigstop@1"}, "started"},
                                         Moment{"ignoring", {"ignore_sigterm"}, "started"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cp_pool::driver_test
