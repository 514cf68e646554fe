#include "driver/report/file_lock.h"

#include <array>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <stdexcept>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/error_text.h"
#include "cases/testing/temporary_folder.h"
#include "driver/report/output_file.h"

namespace cp_pool {
namespace {

using test::error_text;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Optional;

// Another process that calls `take`, and stays until it is killed.
class Neighbour {
 public:
  explicit Neighbour(const std::function<void()>& take) {
    std::array<int, 2> done{};
    if (::pipe(done.data()) != 0) throw std::runtime_error("no pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      take();
      if (::write(done[1], "x", 1) == 1) ::pause();
      ::_exit(0);
    }
    ::close(done[1]);
    char byte = 0;
    if (::read(done[0], &byte, 1) != 1) throw std::runtime_error("the neighbour died");
    ::close(done[0]);
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;
  ~Neighbour() { kill(); }
  void kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  [[nodiscard]] std::string name() const { return fmt::format("process {}", pid_); }

 private:
  pid_t pid_ = -1;
};

TEST(FileLock, NamesItsHolderAndEndsWithIt) {
  const TemporaryFolder folder;
  write_file(folder / "f", "precious");
  EXPECT_EQ(writer_of(folder / "f"), std::nullopt);
  Neighbour neighbour{[&] { new OutputFile{folder / "f"}; }};
  EXPECT_THAT(writer_of(folder / "f"), Optional(neighbour.name()));
  EXPECT_THAT(error_text<OutputError>([&] { OutputFile{folder / "f"}; }),
              AllOf(HasSubstr((folder / "f").string()), HasSubstr("another run, " + neighbour.name())));
  EXPECT_EQ(read_file(folder / "f"), "precious");
  neighbour.kill();
  EXPECT_EQ(writer_of(folder / "f"), std::nullopt);
  OutputFile mine{folder / "f"};
  mine.write("mine");
  EXPECT_EQ(read_file(folder / "f"), "mine");
}

TEST(FileLock, IsNoneOfWhatIsNoFile) {
  const TemporaryFolder folder;
  const Neighbour neighbour{[] { new OutputFile{"/dev/null"}; }};
  EXPECT_EQ(error_text<OutputError>([&] { OutputFile{"/dev/null"}; }), "no error");
  EXPECT_EQ(writer_of("/dev/null"), std::nullopt);
  EXPECT_EQ(writer_of(folder / "none"), std::nullopt);
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(writer_of(folder / "fifo"), std::nullopt) << "opening it would wait";
}

TEST(FolderLock, IsOfOneRunAndOneOption) {
  const TemporaryFolder folder;
  Neighbour neighbour{[&] { new FolderLock{folder.path(), "--dump"}; }};
  EXPECT_THAT(error_text<OutputError>([&] { FolderLock(folder.path(), "--dump"); }),
              AllOf(HasSubstr(folder.path().string()), HasSubstr(neighbour.name()), HasSubstr("--dump")));
  EXPECT_EQ(error_text<OutputError>([&] { FolderLock(folder.path(), "--run-dir"); }), "no error");
  neighbour.kill();
  EXPECT_EQ(error_text<OutputError>([&] { FolderLock(folder.path(), "--dump"); }), "no error");
}

TEST(FolderLock, LeavesNothingBehind) {
  const TemporaryFolder folder;
  {
    const FolderLock lock{folder.path(), "--dump"};
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(FolderLock, NamesTheFolderInWhichNothingCanBeMade) {
  const TemporaryFolder folder;
  write_file(folder / "file", "");
  EXPECT_THAT(error_text<OutputError>([&] { FolderLock(folder / "file", "--dump"); }),
              HasSubstr((folder / "file").string() + ": Not a directory"));
}

}  // namespace
}  // namespace cp_pool
