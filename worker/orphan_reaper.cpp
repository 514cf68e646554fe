#include "worker/orphan_reaper.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "cases/parse_number.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

namespace {

constexpr int kCleanPasses = 2;  // passes without a match before it ends: a process may fork while /proc is read
constexpr int kMostPasses = 200;
constexpr int kBetweenPassesMs = 10;

// The "NAME=VALUE" entries that mark the processes of this rank: its pool's tag, and every variable that holds its
// rank. A launcher, or a launcher's agent, does not have all of them.
std::vector<std::string> marks_of_this_rank() {
  std::vector<std::string> out;
  for (const char* const name : {protocol::kEnvTag, protocol::kEnvRank, "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (const auto value = protocol::process_variable(name)) out.push_back(fmt::format("{}={}", name, *value));
  }
  return out;
}

bool has_marks(const std::filesystem::path& process, const std::vector<std::string>& marks) {
  std::ifstream file(process / "environ");
  const std::string environment = '\0' + std::string{std::istreambuf_iterator<char>(file), {}};
  return std::ranges::all_of(marks, [&](const std::string& mark) {
    return environment.find(fmt::format("{}{}{}", '\0', mark, '\0')) != std::string::npos;
  });
}

// Kills the processes that have all the marks; returns how many there were.
int kill_those_with(const std::vector<std::string>& marks) {
  int killed = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const auto pid = parse_number<pid_t>(entry.path().filename().string());
    if (!pid || *pid == ::getpid()) continue;
    if (has_marks(entry.path(), marks) && ::kill(*pid, SIGKILL) == 0) ++killed;
  }
  return killed;
}

void close_all_but(int fd) {
  if (fd > 0) ::close_range(0, static_cast<unsigned>(fd) - 1, 0);
  ::close_range(static_cast<unsigned>(fd) + 1, ~0U, 0);
  ::open("/dev/null", O_RDWR);  // keeps descriptors 0 to 2 in use, so that no file opened later gets them
  while (::fcntl(STDERR_FILENO, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) >= 0) {
  }
}

[[noreturn]] void keep(int rank_fd, const std::vector<std::string>& marks) {
  ::setsid();
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_NAME, "cp-pool-reaper");
  close_all_but(rank_fd);
  pollfd ended{rank_fd, POLLIN, 0};
  while (::poll(&ended, 1, -1) < 0 && errno == EINTR) {
  }
  for (int clean = 0, passes = 0; clean < kCleanPasses && passes < kMostPasses; ++passes) {
    clean = kill_those_with(marks) == 0 ? clean + 1 : 0;
    ::poll(nullptr, 0, kBetweenPassesMs);
  }
  _exit(0);
}

}  // namespace

void start_orphan_reaper() {
  const std::vector<std::string> marks = marks_of_this_rank();
  if (protocol::process_variable(protocol::kEnvTag).value_or("").empty() || marks.size() < 2) return;
  const int rank_fd = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
  if (rank_fd < 0) return;
  // The reaper is a grandchild, so that the rank's own code never waits for it as a child.
  const pid_t child = ::fork();
  if (child == 0) {
    if (::fork() == 0) keep(rank_fd, marks);
    _exit(0);
  }
  ::close(rank_fd);
  while (child > 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace cp_pool
