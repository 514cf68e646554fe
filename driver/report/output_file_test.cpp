#include "driver/report/output_file.h"

#include <array>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/error_text.h"
#include "cases/testing/file_size_limit.h"
#include "cases/testing/temporary_folder.h"

namespace cp_pool {
namespace {

using test::error_text;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::size_t files_in(const TemporaryFolder& folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator{folder.path()}, std::filesystem::directory_iterator{}));
}

TEST(OutputFile, WritesAtOnceAndReplacesWhatWasThere) {
  const TemporaryFolder folder;
  write_file(folder / "f", "old content");
  OutputFile file{folder / "f"};
  file.write("new\n");
  EXPECT_EQ(read_file(folder / "f"), "new\n");
}

TEST(OutputFile, LeavesWhatWasThereUntilItIsWritten) {
  const TemporaryFolder folder;
  write_file(folder / "f", "old content");
  {
    const OutputFile file{folder / "f"};
  }
  EXPECT_EQ(read_file(folder / "f"), "old content");
}

TEST(OutputFile, AFileThatIsRemovedMeanwhileIsAnError) {
  const TemporaryFolder folder;
  OutputFile file{folder / "f"};
  file.write("one\n");
  std::filesystem::rename(folder / "f", folder / "g");
  file.write("two\n");
  EXPECT_EQ(read_file(folder / "g"), "one\ntwo\n");
  std::filesystem::remove(folder / "g");
  EXPECT_THAT(error_text<OutputError>([&] { file.write("three\n"); }),
              AllOf(HasSubstr((folder / "f").string()), HasSubstr("was removed while")));
}

TEST(OutputFile, NamesPathAndCauseWhenItCannotBeCreated) {
  const TemporaryFolder folder;
  const std::string error = error_text<OutputError>([&] { OutputFile{folder / "missing/f"}; });
  EXPECT_THAT(error, AllOf(HasSubstr("missing/f"), HasSubstr("No such file or directory")));
}

TEST(OutputFile, AFullDiskIsAnError) {
  OutputFile file{"/dev/full"};
  EXPECT_THAT(error_text<OutputError>([&] { file.write("x"); }),
              AllOf(HasSubstr("/dev/full"), HasSubstr("No space left")));
}

TEST(AtomicFile, TheProofLeavesWhatIsThereAndNothingElse) {
  const TemporaryFolder folder;
  write_file(folder / "f", "old");
  const AtomicFile file{folder / "f"};
  EXPECT_EQ(read_file(folder / "f"), "old");
  EXPECT_EQ(files_in(folder), 1U);
}

TEST(AtomicFile, CommitReplacesTheFileByRenaming) {
  const TemporaryFolder folder;
  write_file(folder / "f", "old");
  const AtomicFile file{folder / "f"};
  struct stat before{};
  struct stat after{};
  ASSERT_EQ(::stat((folder / "f").c_str(), &before), 0);
  file.commit("new");
  ASSERT_EQ(::stat((folder / "f").c_str(), &after), 0);
  EXPECT_EQ(read_file(folder / "f"), "new");
  EXPECT_NE(before.st_ino, after.st_ino);  // a process that has the old file open still reads it whole
  EXPECT_EQ(files_in(folder), 1U);
}

TEST(AtomicFile, ACommitThatFailsLeavesWhatWasThereAndNothingElse) {
  const TemporaryFolder folder;
  write_file(folder / "f", "old");
  const AtomicFile file{folder / "f"};
  {
    const test::FileSizeLimit limit(100);
    EXPECT_THAT(error_text<OutputError>([&] { file.commit(std::string(1000, 'x')); }), HasSubstr("File too large"));
  }
  EXPECT_EQ(read_file(folder / "f"), "old");
  EXPECT_EQ(files_in(folder), 1U);
}

TEST(AtomicFile, RefusesWhatCannotBeWrittenBeforeTheRun) {
  const TemporaryFolder folder;
  write_file(folder / "file", "");
  EXPECT_THAT(error_text<OutputError>([&] { AtomicFile{folder / "missing/f"}; }),
              HasSubstr("missing/f: No such file or directory"));
  EXPECT_THAT(error_text<OutputError>([&] { AtomicFile{folder / "file/f"}; }), HasSubstr("Not a directory"));
  EXPECT_THAT(error_text<OutputError>([&] { AtomicFile{folder.path()}; }), HasSubstr("it is a folder"));
}

// Waits until a writer of the pipe would block.
void wait_until_full(int write_end) {
  for (pollfd writable{write_end, POLLOUT, 0}; ::poll(&writable, 1, 0) == 1;) std::this_thread::yield();
}

// The shell may make a terminal non-blocking, and so may a process that shares a socket.
TEST(OutputFile, WaitsForAReaderWhereTheDescriptorDoesNotBlock) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_NONBLOCK), 0);
  const std::string text(std::size_t{1} << 20U, 'x');
  std::string received;
  std::jthread reader([&] {
    wait_until_full(ends[1]);
    std::array<char, 65536> buffer{};
    while (received.size() < text.size()) {
      const ssize_t count = ::read(ends[0], buffer.data(), buffer.size());
      if (count > 0) received.append(buffer.data(), static_cast<std::size_t>(count));
    }
  });
  EXPECT_EQ(error_text<OutputError>([&] { write_all(ends[1], text, "pipe"); }), "no error");
  reader.join();
  EXPECT_EQ(received, text);
  for (const int end : ends) ::close(end);
}

TEST(AtomicFile, CommitLeavesALinkAndReplacesWhatItLeadsTo) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "reports");
  write_file(folder / "reports/a", "old");
  std::filesystem::create_symlink("reports/a", folder / "latest");
  AtomicFile{folder / "latest"}.commit("new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "latest"));
  EXPECT_EQ(read_file(folder / "reports/a"), "new");
}

// /dev/stdout is such a link.
TEST(AtomicFile, ALinkToADescriptorIsWrittenBehindWhatIsThere) {
  const TemporaryFolder folder;
  OutputFile out{folder / "out"};
  out.write("summary\n");
  const int fd = ::open((folder / "out").c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(fd), folder / "stdout");
  AtomicFile{folder / "stdout"}.commit("report\n");
  ::close(fd);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "stdout"));
  EXPECT_EQ(read_file(folder / "out"), "summary\nreport\n");
}

TEST(AtomicFile, ADeviceIsWrittenInPlaceAndItsErrorsAreErrors) {
  const AtomicFile file{"/dev/full"};
  EXPECT_THAT(error_text<OutputError>([&] { file.commit("text"); }), HasSubstr("No space left"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

}  // namespace
}  // namespace cp_pool
