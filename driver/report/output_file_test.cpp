#include "driver/report/output_file.h"

#include <array>
#include <fcntl.h>
#include <functional>
#include <poll.h>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "cases/testing/error_text.h"
#include "cases/testing/file_size_limit.h"
#include "cases/testing/temporary_folder.h"
#include "driver/log/events_json.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

std::size_t files_in(const TemporaryFolder& folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator{folder.path()}, std::filesystem::directory_iterator{}));
}

TEST(JsonlSink, WritesAtOnceAndReplacesWhatWasThere) {
  const TemporaryFolder folder;
  write_file(folder / "f", "old content");
  JsonlSink file{folder / "f"};
  file.write("new\n");
  EXPECT_EQ(read_file(folder / "f"), "new\n");
}

TEST(JsonlSink, LeavesWhatWasThereUntilItIsWritten) {
  const TemporaryFolder folder;
  write_file(folder / "f", "old content");
  {
    const JsonlSink file{folder / "f"};
  }
  EXPECT_EQ(read_file(folder / "f"), "old content");
}

TEST(JsonlSink, AFileThatIsRemovedMeanwhileIsAnError) {
  const TemporaryFolder folder;
  JsonlSink file{folder / "f"};
  file.write("one\n");
  std::filesystem::rename(folder / "f", folder / "g");
  file.write("two\n");
  EXPECT_EQ(read_file(folder / "g"), "one\ntwo\n");
  std::filesystem::remove(folder / "g");
  EXPECT_THAT(error_text<OutputError>([&] { file.write("three\n"); }),
              AllOf(HasSubstr((folder / "f").string()), HasSubstr("was removed while")));
}

TEST(JsonlSink, NamesPathAndCauseWhenItCannotBeCreated) {
  const TemporaryFolder folder;
  const std::string error = error_text<OutputError>([&] { JsonlSink{folder / "missing/f"}; });
  EXPECT_THAT(error, AllOf(HasSubstr("missing/f"), HasSubstr("No such file or directory")));
}

TEST(JsonlSink, AFullDiskIsAnError) {
  JsonlSink file{"/dev/full"};
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
    const FileSizeLimit limit(100);
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
TEST(JsonlSink, WaitsForAReaderWhereTheDescriptorDoesNotBlock) {
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
  JsonlSink out{folder / "out"};
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
  Neighbour neighbour{[&] { new JsonlSink{folder / "f"}; }};
  EXPECT_THAT(writer_of(folder / "f"), Optional(neighbour.name()));
  EXPECT_THAT(error_text<OutputError>([&] { JsonlSink{folder / "f"}; }),
              AllOf(HasSubstr((folder / "f").string()), HasSubstr("another run, " + neighbour.name())));
  EXPECT_EQ(read_file(folder / "f"), "precious");
  neighbour.kill();
  EXPECT_EQ(writer_of(folder / "f"), std::nullopt);
  JsonlSink mine{folder / "f"};
  mine.write("mine");
  EXPECT_EQ(read_file(folder / "f"), "mine");
}

TEST(FileLock, IsNoneOfWhatIsNoFile) {
  const TemporaryFolder folder;
  const Neighbour neighbour{[] { new JsonlSink{"/dev/null"}; }};
  EXPECT_EQ(error_text<OutputError>([&] { JsonlSink{"/dev/null"}; }), "no error");
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

std::vector<nlohmann::json> parse_lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(JsonlSink, EveryEventIsOneLineWithVersionTimeAndType) {
  const TemporaryFolder folder;
  JsonlSink sink{folder / "events.jsonl"};
  sink.on_event(run_started(1));
  sink.on_event(pool_ready());
  sink.on_event(finished(0, "id", CaseOutcome::pass));
  sink.on_event(run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0}));

  const auto lines = parse_lines(read_file(folder / "events.jsonl"));  // read while the sink is still open
  ASSERT_EQ(lines.size(), 4U);
  for (const auto& line : lines) {
    EXPECT_EQ(line["v"], 1);
    EXPECT_THAT(line["ts"].get<std::string>(),
                ::testing::MatchesRegex(R"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z)"));
  }
  EXPECT_EQ(lines[0]["type"], "run_started");
  EXPECT_EQ(lines[3]["type"], "run_finished");
}

TEST(JsonlSink, TheFileIsReadableUpToTheLastLineAfterSigkill) {
  const TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    JsonlSink sink{folder / "events.jsonl"};
    for (std::size_t i = 0;; ++i) {
      sink.on_event(failed_case(i, "id"));
      if (i == 20 && ::write(ready[1], "x", 1) != 1) ::_exit(1);
    }
  }
  ::close(ready[1]);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));

  const std::string text = read_file(folder / "events.jsonl");
  EXPECT_EQ(text.back(), '\n');
  EXPECT_GT(parse_lines(text).size(), 20U);
}

TEST(UtcTimestamp, IsIso8601WithMilliseconds) {
  using std::chrono::milliseconds;
  EXPECT_EQ(utc_timestamp(std::chrono::system_clock::time_point{milliseconds{1769843289007}}),
            "2026-01-31T07:08:09.007Z");
}

}  // namespace
}  // namespace cp_pool::test
