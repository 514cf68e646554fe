// Runs a program on a terminal of its own, for tests that type and wait for output.
#pragma once

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <poll.h>
#include <pty.h>
#include <regex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "cases/unique_fd.h"

namespace cp_pool::test {

class Terminal {
 public:
  explicit Terminal(std::vector<std::string> argv) {
    std::vector<char*> words;
    words.reserve(argv.size() + 1);
    for (std::string& word : argv) words.push_back(word.data());
    words.push_back(nullptr);
    const winsize size{.ws_row = 50, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
    int fd = -1;
    pid_ = ::forkpty(&fd, nullptr, nullptr, &size);
    if (pid_ < 0) throw std::runtime_error("forkpty failed");
    if (pid_ == 0) {
      ::setenv("TERM", "xterm", 1);
      ::setenv("NO_COLOR", "1", 1);
      ::execvp(words[0], words.data());
      ::_exit(126);
    }
    fd_.reset(fd);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  void type(std::string_view text) const {
    if (::write(fd_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw std::runtime_error("the terminal takes no input");
    }
  }

  // Returns the output up to and including the text, without control sequences. Throws if the text does not come within
  // a minute or the program ends first.
  std::string until(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes{1};
    std::size_t at = 0;
    while ((at = shown_.find(text)) == std::string::npos) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      pollfd input{.fd = fd_.get(), .events = POLLIN, .revents = 0};
      const int ready = left.count() > 0 ? ::poll(&input, 1, static_cast<int>(left.count())) : 0;
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0 || !read_some()) throw std::runtime_error("'" + text + "' is not shown, but: " + shown_);
    }
    const std::string out = shown_.substr(0, at + text.size());
    shown_.erase(0, out.size());
    return out;
  }

  // Reads until the program has ended, and returns its exit code, or 128 + signal if a signal killed it.
  int wait() {
    while (read_some()) {
    }
    int status = 0;
    TEMP_FAILURE_RETRY(::waitpid(pid_, &status, 0));
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  // Returns false when the program has closed the terminal.
  bool read_some() {
    std::string chunk(4096, '\0');
    const ssize_t size = TEMP_FAILURE_RETRY(::read(fd_.get(), chunk.data(), chunk.size()));
    if (size <= 0) return false;
    static const std::regex cursor{"\x1b\\[[0-9;?]*[A-Za-z]|[\r\a]"};
    // A control sequence may come in two pieces.
    shown_ = std::regex_replace(shown_ + chunk.substr(0, static_cast<std::size_t>(size)), cursor, "");
    return true;
  }

  pid_t pid_ = -1;
  UniqueFd fd_;
  std::string shown_;
};

}  // namespace cp_pool::test
