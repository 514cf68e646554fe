#include "driver/cli/status_requests.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace cp_pool {

namespace {

// A pool waits 1.2 s for the answer of its worker.
constexpr std::chrono::milliseconds kPatience{1500};

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): what a signal handler may touch
volatile std::sig_atomic_t status_asked = 0;

extern "C" void note_status_request(int /*signal*/) {
  status_asked = 1;
}

// Must be called in the foreground: a background process that changes its terminal is stopped.
void set_terminal(const termios& settings) {
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &settings);
}

}  // namespace

StatusRequests::StatusRequests(std::function<void(const std::string& line)> show, bool keys)
    : show_{std::move(show)}, keys_{keys && ::isatty(STDIN_FILENO) == 1} {
  struct sigaction action{};
  action.sa_handler = note_status_request;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, &before_);
}

StatusRequests::~StatusRequests() {
  give_terminal_back();
  ::sigaction(SIGUSR1, &before_, nullptr);
}

void StatusRequests::on_event(const Event& event) {
  running_.on_event(event);
  if (open_ && taken_up_ && running_.answered()) answer();
  if (!std::holds_alternative<RunFinished>(event)) return;
  give_terminal_back();
  keys_ = false;
}

void StatusRequests::on_tick() {
  if (keys_) take_keys();
  if (open_) {  // requests that come meanwhile get the same answer
    if (!taken_up_ || running_.answered() || Clock::now() >= limit_) answer();
    return;
  }
  if (status_asked == 0) return;
  running_.ask();
  open_ = true;
  taken_up_ = false;
  ++requests_;
  limit_ = Clock::now() + kPatience;
  if (running_.answered()) answer();  // no case is running
}

std::uint64_t StatusRequests::take_requests() {
  taken_up_ = open_;
  return requests_;
}

void StatusRequests::answer() {
  open_ = false;
  status_asked = 0;
  for (const std::string& line : running_.lines(Clock::now())) show_(line);
}

bool StatusRequests::has_terminal() const {
  return ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}

// A shell may have changed the terminal after a stop (Ctrl-Z), so the settings are checked each time.
void StatusRequests::take_keys() {
  if (!has_terminal()) return;
  termios now{};
  if (::tcgetattr(STDIN_FILENO, &now) != 0) return;
  if ((now.c_lflag & ICANON) != 0) {
    terminal_ = now;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C and Ctrl-Z stay signals
    set_terminal(now);
    taken_ = true;
  }
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  while (::poll(&input, 1, 0) == 1 && (input.revents & POLLIN) != 0) {
    std::array<char, 64> typed{};
    const ssize_t size = ::read(STDIN_FILENO, typed.data(), typed.size());
    if (size <= 0) {
      keys_ = keys_ && size < 0 && errno == EINTR;
      return;
    }
    if (std::string_view{typed.data(), static_cast<std::size_t>(size)}.find('t') != std::string_view::npos) {
      status_asked = 1;
    }
  }
}

void StatusRequests::give_terminal_back() {
  if (std::exchange(taken_, false) && has_terminal()) set_terminal(terminal_);
}

}  // namespace cp_pool
