#include "worker/lifeline.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <span>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "worker/orphan_reaper.h"
#include "worker/protocol/block_signals.h"
#include "worker/protocol/host_resources.h"
#include "worker/protocol/messages.h"
#include "worker/tcp.h"

namespace cp_pool {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kBeat{1};
constexpr seconds kWithoutDriver{5};
// A rank that a signal has stopped cannot end itself; then a kernel timer kills it. A rank must not outlive the driver
// by more than 10 s.
constexpr seconds kLastResort{9};
constexpr seconds kConnectLimit{8};  // limit for all attempts to reach the driver
constexpr seconds kOneTry{3};        // limit for an answer
constexpr std::string_view kBeatEvent = "{\"event\":\"beat\"}\n";
constexpr std::string_view kBeatOrder = "{\"order\":\"beat\"}";

std::atomic<Lifeline*> the_lifeline{nullptr};

// Whether the driver's first line is a welcome. It is read byte by byte, so that nothing of the next line is read.
bool is_accepted(int fd, milliseconds limit, std::string& why) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::string line;
  while (line.size() <= kBeatOrder.size()) {
    if (poll_until(fd, POLLIN, deadline) <= 0) {
      why = "no answer";
      return false;
    }
    char byte = 0;
    const ssize_t got = ::recv(fd, &byte, 1, 0);
    if (got <= 0) {
      why = got == 0 ? "it closed the connection" : std::strerror(errno);
      return false;
    }
    if (byte == '\n') break;
    line += byte;
  }
  if (line == kBeatOrder) return true;
  why = "the other end is not cp-pool";
  return false;
}

bool introduce(int fd, const std::string& token, int rank, lifeline::Stream stream, std::string& why) {
  const lifeline::Joined joined{token, rank, stream, protocol::host_name(), getpid()};
  const std::string line = lifeline::line_of(lifeline::Event{joined});
  if (!send_all(fd, std::as_bytes(std::span{line}))) {
    why = std::strerror(errno);
    return false;
  }
  return is_accepted(fd, kOneTry, why);
}

bool same_file(int one, int other) {
  struct stat first{};
  struct stat second{};
  return fstat(one, &first) == 0 && fstat(other, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// Returns a file descriptor of the previous stderr.
int redirect_stderr(int to) {
  const int before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const bool stdout_too = same_file(STDOUT_FILENO, STDERR_FILENO);
  std::fflush(nullptr);
  dup2(to, STDERR_FILENO);
  if (stdout_too) dup2(to, STDOUT_FILENO);
  return before;
}

void keep_alive(int fd) {
  constexpr int kIdleSeconds = 5;
  constexpr int kProbes = 3;
  // Keep-alive probes detect that the driver's host is gone.
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kIdleSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

// Writes a message to the launcher's stderr, if that can be done without waiting.
void write_if_taken(int fd, std::string_view text) {
  pollfd ready{fd, POLLOUT, 0};
  if (::poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return;
  [[maybe_unused]] const ssize_t written = ::write(fd, text.data(), text.size());
}

std::optional<timer_t> make_last_resort() {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer{};
  return timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 ? std::optional(timer) : std::nullopt;
}

void set_last_resort(const std::optional<timer_t>& timer, seconds in) {  // 0: the timer is stopped
  itimerspec when{};
  when.it_value.tv_sec = in.count();
  if (timer) timer_settime(*timer, 0, &when, nullptr);
}

// Whether a handler for SIGUSR2 is installed. Without one the signal would end the process.
bool shows_stacks() {
  struct sigaction now{};
  return sigaction(SIGUSR2, nullptr, &now) == 0 && now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN;
}

}  // namespace

// --- Start -----------------------------------------------------------------------------------------------------------
Lifeline* Lifeline::current() {
  return the_lifeline;
}

Lifeline* Lifeline::start(const protocol::RankEnvironment& environment) {
  if (Lifeline* const existing = current()) return existing;
  const auto addresses = protocol::process_variable(lifeline::kEnvAddresses);
  if (!addresses) return nullptr;
  const auto token = protocol::process_variable(lifeline::kEnvToken);
  if (!token) {
    throw protocol::EnvironmentError(
        fmt::format("{} is not set although {} is", lifeline::kEnvToken, lifeline::kEnvAddresses));
  }
  const int rank = environment.rank;
  std::string why;
  // The connection for stderr comes first, so that the driver has it when it hears of the rank.
  const Connected errors = connect_to_any(
      lifeline::parse_endpoints(*addresses), kConnectLimit,
      [&](int fd, std::string& reason) { return introduce(fd, *token, rank, lifeline::Stream::errors, reason); }, why);
  UniqueFd messages = errors.fd ? connect_within(errors.endpoint, kOneTry, why) : UniqueFd{};
  const std::optional<timer_t> last_resort = make_last_resort();
  set_last_resort(last_resort, kLastResort);  // set first: the rank may be stopped as soon as the driver knows it
  if (!messages || !introduce(messages.get(), *token, rank, lifeline::Stream::messages, why)) {
    fmt::print(stderr, "cp-pool-worker: rank {} on host {} ends: it cannot reach cp-pool ({})\n", rank,
               protocol::host_name(), why);
    std::fflush(nullptr);
    _exit(protocol::kExitWithoutDriver);
  }
  start_orphan_reaper();
  const int launchers = redirect_stderr(errors.fd.get());
  keep_alive(messages.get());
  the_lifeline = new Lifeline(rank, messages.release(), launchers,
                              last_resort);  // NOLINT(cppcoreguidelines-owning-memory): it stays
  // A child process that the rank forks has no lifeline. If it inherited the connection, the connection would stay open
  // after the rank's death.
  pthread_atfork(nullptr, nullptr, [] {
    if (const Lifeline* const parents = the_lifeline.exchange(nullptr)) ::close(parents->fd_);
  });
  return the_lifeline;
}

Lifeline::Lifeline(int rank, int fd, int launchers_stderr, std::optional<timer_t> last_resort)
    : rank_(rank),
      fd_(fd),
      launchers_stderr_(launchers_stderr),
      host_(protocol::host_name()),
      last_resort_(last_resort) {
  heard();
  const BlockAllSignals block;  // signals are for the rank's other threads
  std::thread([this] { serve(); }).detach();
}

// --- The thread ------------------------------------------------------------------------------------------------------
void Lifeline::serve() {
  std::array<char, 4096> buffer{};
  Clock::time_point next_beat = Clock::now();
  for (;;) {
    if (Clock::now() >= next_beat) {
      beat();
      next_beat = Clock::now() + kBeat;
    }
    const auto left = std::chrono::ceil<milliseconds>(next_beat - Clock::now()).count();
    pollfd ready{fd_, POLLIN, 0};
    ::poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    const int error = got < 0 ? errno : 0;
    // If the driver is killed with an unread beat, the connection is reset.
    if (got == 0 || error == ECONNRESET) end_without_driver("cp-pool has ended");
    if (got > 0) {
      take_bytes({buffer.data(), static_cast<std::size_t>(got)});
    } else if (error != EAGAIN && error != EINTR) {
      end_without_driver(fmt::format("its connection to cp-pool is lost ({})", std::strerror(error)));
    } else if (Clock::now() - last_heard_ >= kWithoutDriver) {
      end_without_driver(fmt::format("cp-pool has been silent for {} s", kWithoutDriver.count()));
    }
  }
}

void Lifeline::heard() {
  last_heard_ = Clock::now();
  set_last_resort(last_resort_, kLastResort);
}

void Lifeline::take_bytes(std::string_view bytes) {
  heard();
  for (;;) {
    const std::size_t newline = bytes.find('\n');
    line_ += bytes.substr(0, newline);
    if (line_.size() > lifeline::kMaxLineBytes) end_without_driver("it received an invalid message from cp-pool");
    if (newline == std::string_view::npos) return;
    bytes.remove_prefix(newline + 1);
    take_line(line_);
    line_.clear();
  }
}

void Lifeline::take_line(std::string_view line) {
  if (line == kBeatOrder) return;
  std::optional<lifeline::Order> order;
  try {
    order = lifeline::read_order(line);
  } catch (const std::exception& e) {
    end_without_driver(fmt::format("it received an invalid message from cp-pool: {}", e.what()));
  }
  if (!order) return;
  if (std::holds_alternative<lifeline::End>(*order)) _exit(protocol::kExitWithoutDriver);
  if (std::holds_alternative<lifeline::ShowStack>(*order) && shows_stacks()) ::kill(getpid(), SIGUSR2);
  heard();
  if (const auto* where = std::get_if<lifeline::Rendezvous>(&*order)) {
    {
      const std::lock_guard lock(mutex_);
      rendezvous_ = *where;
    }
    told_.notify_all();
  }
}

void Lifeline::beat() {
  const std::lock_guard lock(write_mutex_);
  write_now(unwritten_.empty() ? kBeatEvent : "");
}

bool Lifeline::write_now(std::string_view line) {
  unwritten_ += line;
  const ssize_t sent = ::send(fd_, unwritten_.data(), unwritten_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) unwritten_.erase(0, static_cast<std::size_t>(sent));
  return unwritten_.empty();
}

void Lifeline::write_within(std::string_view line, milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  const std::lock_guard lock(write_mutex_);
  bool written = write_now(line);
  while (!written && Clock::now() < deadline) {
    constexpr int kSliceMs = 50;
    pollfd ready{fd_, POLLOUT, 0};
    ::poll(&ready, 1, kSliceMs);
    written = write_now("");
  }
}

void Lifeline::end_without_driver(std::string_view why) const {
  const std::string text = fmt::format("cp-pool-worker: rank {} on host {} ends: {}\n", rank_, host_, why);
  write_if_taken(launchers_stderr_, text);
  _exit(protocol::kExitWithoutDriver);
}

// --- What the rank says and asks -------------------------------------------------------------------------------------
void Lifeline::tell_rendezvous(const lifeline::Rendezvous& where) {
  write_within(lifeline::line_of(lifeline::Event{where}), kWithoutDriver);
}

lifeline::Rendezvous Lifeline::await_rendezvous() {
  std::unique_lock lock(mutex_);
  told_.wait(lock, [this] { return rendezvous_.has_value(); });
  return *rendezvous_;
}

void Lifeline::tell_ending(int exit_code) {
  constexpr milliseconds kLimit{500};
  write_within(lifeline::line_of(lifeline::Event{lifeline::Ending{exit_code}}), kLimit);
}

std::string Lifeline::local_address() const {
  return own_end(fd_);
}

void tell_ending(int exit_code) {
  if (Lifeline* const lifeline = Lifeline::current()) lifeline->tell_ending(exit_code);
}

}  // namespace cp_pool
