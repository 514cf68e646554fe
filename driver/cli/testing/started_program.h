// Runs the real cp-pool from a test.
#pragma once

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "cases/testing/temporary_folder.h"

namespace cp_pool::test {

using Words = std::vector<std::string>;

// Returns the words of a command line with more words behind them.
inline Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// Return the events of this type, of all these and of an events file.
inline std::vector<nlohmann::json> of_type(std::vector<nlohmann::json> events, const std::string& type) {
  std::erase_if(events, [&](const nlohmann::json& event) { return event["type"] != type; });
  return events;
}
inline std::vector<nlohmann::json> events_in(const std::filesystem::path& file, const std::string& type) {
  return of_type(json_lines(read_file(file)), type);
}

// Matches a stderr of exactly one line, in the form of errors.
inline auto is_one_error(const std::string& part) {
  using namespace ::testing;
  return AllOf(StartsWith("cp-pool: error: "), HasSubstr(part), EndsWith("\n"),
               ResultOf([](const std::string& s) { return std::ranges::count(s, '\n'); }, 1));
}

// Whether the file is there and has the text.
inline bool has_text(const std::filesystem::path& file, const std::string& text) {
  return std::filesystem::exists(file) && read_file(file).find(text) != std::string::npos;
}

struct Finished {
  int exit_code = 0;      // 128 + signal if it was killed by one
  long most_rss_kib = 0;  // the most memory that it had
  std::string out;
  std::string err;

  [[nodiscard]] std::vector<std::string> out_lines() const {
    std::vector<std::string> lines;
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = out.find('\n', begin)) != std::string::npos; begin = end + 1) {
      lines.push_back(out.substr(begin, end - begin));
    }
    return lines;
  }
  [[nodiscard]] std::string last_line() const { return out_lines().empty() ? "" : out_lines().back(); }

  friend void PrintTo(const Finished& finished, std::ostream* to) {  // NOLINT(readability-identifier-naming)
    *to << "exit code " << finished.exit_code << ", stdout:\n" << finished.out << "stderr:\n" << finished.err;
  }
};

// Matches a program by its exit code and by what it printed: exits(96, out(a, b), err(c)) has stdout match a and b.
template <typename... Parts>
auto exits(int code, const Parts&... parts) {
  return ::testing::AllOf(::testing::Field("exit code", &Finished::exit_code, code), parts...);
}
template <typename... Matchers>
auto out(const Matchers&... matchers) {
  return ::testing::Field("stdout", &Finished::out, ::testing::AllOf(matchers...));
}
template <typename... Matchers>
auto err(const Matchers&... matchers) {
  return ::testing::Field("stderr", &Finished::err, ::testing::AllOf(matchers...));
}
template <typename... Matchers>
auto last_line(const Matchers&... matchers) {
  return ::testing::Property("last line", &Finished::last_line, ::testing::AllOf(matchers...));
}

// Matches a program that wrote one line to stderr, in the form of errors.
inline auto refuses(int code, const std::string& part) {
  return exits(code, err(is_one_error(part)));
}

// A started program. Its stdout and stderr go to files. It is killed if the test ends first.
class Program {
 public:
  struct Redirect {
    std::string in = "/dev/null";
    std::string out = {};  // empty means captured
  };

  explicit Program(std::vector<std::string> argv) : Program{std::move(argv), Redirect{}} {}

  Program(std::vector<std::string> argv, const Redirect& redirect) {
    std::vector<char*> words;
    words.reserve(argv.size() + 1);
    for (std::string& word : argv) words.push_back(word.data());
    words.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ != 0) return;
    const std::string out = redirect.out.empty() ? (folder_ / "out").string() : redirect.out;
    const int in_fd = ::open(redirect.in.c_str(), O_RDONLY);
    const int out_fd = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int err_fd = ::open((folder_ / "err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (::dup2(in_fd, 0) < 0 || ::dup2(out_fd, 1) < 0 || ::dup2(err_fd, 2) < 0) ::_exit(125);
    ::execvp(words[0], words.data());
    ::_exit(126);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  // True until the program has ended. wait() returns the details.
  [[nodiscard]] bool running() const {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == 0;
  }

  Finished wait() {
    int status = 0;
    rusage usage{};
    TEMP_FAILURE_RETRY(::wait4(pid_, &status, 0, &usage));
    pid_ = -1;
    return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            .most_rss_kib = usage.ru_maxrss,
            .out = std::filesystem::exists(folder_ / "out") ? read_file(folder_ / "out") : "",
            .err = read_file(folder_ / "err")};
  }

 private:
  TemporaryFolder folder_;
  pid_t pid_ = -1;
};

// Runs a program until it ends.
inline Finished run_to_end(std::vector<std::string> argv, const Program::Redirect& redirect = {}) {
  return Program{std::move(argv), redirect}.wait();
}

}  // namespace cp_pool::test
