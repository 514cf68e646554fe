// A program that a test of lifelines starts.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace cp_pool::lifeline_test {

using Variables = std::vector<std::pair<std::string, std::string>>;

// A process with its stdout and stderr in a pipe.
class Process {
 public:
  Process(const std::vector<std::string>& command, const Variables& variables) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(in[0], 0);
      dup2(out[1], 1);
      dup2(out[1], 2);
      for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
      std::vector<char*> argv;
      for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    in_ = in[1];
    out_ = out[0];
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (!status_) {
      ::kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(in_);
    close(out_);
  }

  [[nodiscard]] pid_t pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }
  void stop() const {
    ::kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }
  void say(const std::string& line) const { ASSERT_GT(write(in_, (line + "\n").data(), line.size() + 1), 0); }

  // Whether it has ended.
  bool poll_end() {
    int status = 0;
    if (!status_ && waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
    return status_.has_value();
  }
  // How it ended: "exit 75" or "signal 9". Only after poll_end() has returned true.
  [[nodiscard]] std::string end() const {
    if (WIFSIGNALED(*status_)) return "signal " + std::to_string(WTERMSIG(*status_));
    return "exit " + std::to_string(WEXITSTATUS(*status_));
  }
  std::string wait_for_end() {
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (!poll_end() && std::chrono::steady_clock::now() < give_up) ::poll(nullptr, 0, 5);
    return status_ ? end() : "still there";
  }
  // The next line of its output; empty at the end of file, or after kPatience without output.
  std::string line() {
    for (;;) {
      const std::size_t newline = read_.find('\n');
      if (newline != std::string::npos) {
        std::string line = read_.substr(0, newline);
        read_.erase(0, newline + 1);
        return line;
      }
      pollfd ready{out_, POLLIN, 0};
      std::array<char, 4096> buffer{};
      if (::poll(&ready, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) != 1) return "";
      const ssize_t got = read(out_, buffer.data(), buffer.size());
      if (got <= 0) return std::exchange(read_, {});
      read_.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }

 private:
  static constexpr std::chrono::seconds kPatience{60};

  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  std::optional<int> status_;
  std::string read_;
};

}  // namespace cp_pool::lifeline_test
