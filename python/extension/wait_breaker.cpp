#include "python/extension/wait_breaker.h"

#include <filesystem>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "cases/parse_number.h"

namespace cp_pool {

namespace {

int option_of(int fd, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

struct OpenSocket {
  int fd;
  ino_t inode;

  // Of TCP, not of a pair of sockets or a file.
  [[nodiscard]] bool is_network() const {
    const int domain = option_of(fd, SO_DOMAIN);
    return (domain == AF_INET || domain == AF_INET6) && option_of(fd, SO_TYPE) == SOCK_STREAM;
  }
  [[nodiscard]] bool listens() const { return option_of(fd, SO_ACCEPTCONN) == 1; }
  // Returns the port of this end; 0 if another thread has closed the socket.
  [[nodiscard]] std::uint16_t port() const {
    sockaddr_in6 address{};  // in which the port of an IPv4 address has the same place
    socklen_t size = sizeof address;
    const bool found = getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    return found ? ntohs(address.sin6_port) : 0;
  }
};

std::vector<OpenSocket> open_sockets() {
  std::vector<OpenSocket> out;
  std::error_code none;  // without /proc no socket is known
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none)) {
    const auto fd = parse_number<int>(entry.path().filename().string());
    struct stat facts{};
    if (fd && fstat(*fd, &facts) == 0 && S_ISSOCK(facts.st_mode)) out.push_back({.fd = *fd, .inode = facts.st_ino});
  }
  return out;
}

}  // namespace

void OwnSockets::remember_own() {
  const std::lock_guard lock(mutex_);
  own_.clear();
  own_ports_.clear();
  for (const OpenSocket& socket : open_sockets()) {
    if (others_.contains(socket.inode)) continue;
    own_.insert(socket.inode);
    if (socket.is_network() && socket.listens()) own_ports_.insert(socket.port());
  }
}

void OwnSockets::remember_others() {
  const std::lock_guard lock(mutex_);
  for (const OpenSocket& socket : open_sockets()) {
    const bool accepted = socket.is_network() && own_ports_.contains(socket.port());
    if (!accepted && !own_.contains(socket.inode)) others_.insert(socket.inode);
  }
}

void OwnSockets::shut_others() {
  remember_others();
  const std::lock_guard lock(mutex_);
  for (const OpenSocket& socket : open_sockets()) {
    if (others_.contains(socket.inode) && socket.is_network() && !socket.listens()) shutdown(socket.fd, SHUT_RDWR);
  }
}

namespace {

// How long after the deadline connections are shut. Code that computes or sleeps is interrupted at the deadline, so it
// reports first, and peers that only wait for it see that a peer has failed.
constexpr std::chrono::milliseconds kHeadStart{50};
// How often code is interrupted again, since it may catch the exception or start another wait.
constexpr std::chrono::milliseconds kAgain{50};

}  // namespace

WaitBreaker::WaitBreaker(int interrupt_signal)
    : interrupt_signal_(interrupt_signal),
      python_thread_(static_cast<pid_t>(syscall(SYS_gettid))),
      thread_([this] { serve(); }) {}

WaitBreaker::~WaitBreaker() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
}

void WaitBreaker::begin_case(Clock::time_point deadline) {
  bool sooner = false;
  {
    const std::lock_guard lock(mutex_);
    in_case_ = true;
    reason_ = Reason::none;
    deadline_ = deadline;
    sooner = deadline < wakes_;
  }
  if (sooner) changed_.notify_all();
}

void WaitBreaker::end_case() {
  const std::lock_guard lock(mutex_);
  in_case_ = false;
  reason_ = Reason::none;  // the adapter's setup, which may follow, is not to be freed
  deadline_ = Clock::time_point::max();
}

void WaitBreaker::abort() {
  {
    const std::lock_guard lock(mutex_);
    if (in_case_ && reason_ == Reason::none) reason_ = Reason::aborted;
  }
  sockets_.shut_others();
  interrupt_python();
  changed_.notify_all();
}

void WaitBreaker::interrupt_python() const {
  if (in_python_) syscall(SYS_tgkill, getpid(), python_thread_, interrupt_signal_);
}

void WaitBreaker::serve() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    const auto now = Clock::now();
    if (in_case_ && reason_ != Reason::none) {
      const bool shuts = now >= deadline_ + kHeadStart || reason_ == Reason::aborted;
      lock.unlock();
      interrupt_python();
      if (shuts && in_python_) sockets_.shut_others();
      lock.lock();
      wakes_ = now + kAgain;
    } else if (in_case_ && now >= deadline_) {
      reason_ = Reason::timed_out;
      interrupt_python();
      wakes_ = now + kHeadStart;
    } else {
      wakes_ = deadline_;
    }
    if (wakes_ == Clock::time_point::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, wakes_);
    }
  }
}

}  // namespace cp_pool
