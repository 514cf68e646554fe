#include "cases/file_reader.h"

#include <array>
#include <fcntl.h>
#include <future>
#include <poll.h>
#include <pty.h>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/error_text.h"
#include "cases/testing/temporary_folder.h"

namespace cp_pool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& path) {
  FileReader file(path);
  std::vector<std::string> lines;
  for (std::string line; file.read_line(line);) lines.push_back(line);
  return lines;
}

TEST(FileReader, GivesTheLinesOfAFileOfAnySize) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "f", "a\n\nb\nc");
  EXPECT_THAT(lines_of(folder / "f"), ElementsAre("a", "", "b", "c"));
  const std::string longer(200'000, 'x');  // longer than a block that is read at once
  test::write_file(folder / "f", longer + "\n" + longer + "\n");
  EXPECT_THAT(lines_of(folder / "f"), ElementsAre(longer, longer));
  test::write_file(folder / "f", "");
  EXPECT_THAT(lines_of(folder / "f"), ElementsAre());
}

TEST(FileReader, CountsLinesAndKnowsAnUnfinishedOne) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "f", "a\nb");
  FileReader file(folder / "f");
  std::string line;
  ASSERT_TRUE(file.read_line(line));
  EXPECT_FALSE(file.line_was_cut());
  ASSERT_TRUE(file.read_line(line));
  EXPECT_EQ(file.line_number(), 2U);
  EXPECT_TRUE(file.line_was_cut());
}

TEST(FileReader, WhatNeverEndsIsRefused) {
  constexpr std::size_t kMiB = std::size_t{1} << 20U;
  EXPECT_EQ(test::error_text([] { FileReader("/dev/zero", 2 * kMiB).read_all(); }),
            "/dev/zero: larger than 2 MiB, the limit for a matrix or case");
  std::string line;
  EXPECT_EQ(test::error_text([&] { FileReader("/dev/zero", kMiB).read_line(line); }), "line 1 has more than 1 MiB");
  EXPECT_EQ(kMostInputBytes, 256 * kMiB);
}

TEST(FileReader, WhatCannotBeReadIsASystemError) {
  EXPECT_THROW(FileReader("/no/such/file"), std::system_error);
  EXPECT_THROW(FileReader("/").read_all(), std::system_error);
}

// Captures stderr of this process for as long as the object lives.
class Stderr {
 public:
  Stderr() : old_(::dup(STDERR_FILENO)) {
    if (::pipe2(ends_.data(), O_CLOEXEC) == 0) ::dup2(ends_[1], STDERR_FILENO);
  }
  Stderr(const Stderr&) = delete;
  Stderr& operator=(const Stderr&) = delete;
  ~Stderr() {
    ::dup2(old_, STDERR_FILENO);
    for (const int fd : {old_, ends_[0], ends_[1]}) ::close(fd);
  }
  // Waits for the next line.
  std::string line() const {
    std::string text;
    for (char c = 0; ::read(ends_[0], &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }
  [[nodiscard]] bool is_silent() const {
    pollfd ready{.fd = ends_[0], .events = POLLIN, .revents = 0};
    return ::poll(&ready, 1, 0) == 0;
  }

 private:
  int old_;
  std::array<int, 2> ends_{};
};

TEST(FileReader, AFifoWithoutAWriterSaysWhatItWaitsForAndIsReadThen) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::string said;
  std::future<std::string> text;
  {
    const Stderr stderr_of_test;
    text = std::async(std::launch::async, [&] { return FileReader(path).read_all(); });
    said = stderr_of_test.line();
    const int writer = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(::write(writer, "{}", 2), 2);
    ::close(writer);
    text.wait();
    EXPECT_TRUE(stderr_of_test.is_silent()) << "once is enough";
  }
  EXPECT_THAT(said, HasSubstr(": waiting for data from " + path));
  EXPECT_EQ(text.get(), "{}");
}

TEST(FileReader, ATerminalSaysAtOnceHowItEnds) {
  int terminal = -1;
  int user = -1;
  std::array<char, 64> name{};
  ASSERT_EQ(::openpty(&user, &terminal, name.data(), nullptr, nullptr), 0);
  std::string said;
  std::future<std::string> text;
  {
    const Stderr stderr_of_test;
    text = std::async(std::launch::async, [&] { return FileReader(name.data()).read_all(); });
    said = stderr_of_test.line();
    EXPECT_EQ(::write(user, "{}\n\x04", 4), 4);
    text.wait();
  }
  ::close(terminal);
  ::close(user);
  EXPECT_THAT(said,
              HasSubstr(": waiting for input from the terminal " + std::string{name.data()} + "; Ctrl-D ends it"));
  EXPECT_EQ(text.get(), "{}\n");
}

}  // namespace
}  // namespace cp_pool
