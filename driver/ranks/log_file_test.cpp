#include "driver/ranks/log_file.h"

#include <vector>

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"

namespace cp_pool {
namespace {

using test::read_file;
using test::TemporaryFolder;
using test::write_file;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LogFileTest : public ::testing::Test {
 protected:
  LogFile::OnError note() {
    return [this](const std::string& error) { errors.push_back(error); };
  }

  TemporaryFolder folder;
  std::vector<std::string> errors;
};

TEST_F(LogFileTest, HasEverythingAtOnce) {
  LogFile log{folder / "log", note()};
  log.write("one\n");
  EXPECT_EQ(read_file(folder / "log"), "one\n");
  log.write("two\n");
  log.close();
  EXPECT_EQ(read_file(folder / "log"), "one\ntwo\n");
  EXPECT_THAT(errors, IsEmpty());
}

TEST_F(LogFileTest, SaysOnceThatTheDiskIsFull) {
  LogFile log{"/dev/full", note()};
  log.write("one\n");
  log.write("two\n");
  log.close();
  EXPECT_THAT(errors, ElementsAre("cannot write /dev/full: No space left on device"));
}

TEST_F(LogFileTest, SaysWhyItCannotBeMade) {
  LogFile log{folder / "none/log", note()};
  log.write("one\n");
  log.close();
  EXPECT_THAT(errors, ElementsAre("cannot write " + (folder / "none/log").string() + ": No such file or directory"));
}

TEST_F(LogFileTest, SaysAtTheEndThatItWasRemoved) {
  LogFile log{folder / "log", note()};
  log.write("one\n");
  std::filesystem::remove(folder / "log");
  log.write("two\n");
  EXPECT_THAT(errors, IsEmpty());
  log.close();
  EXPECT_THAT(errors, ElementsAre("cannot write " + (folder / "log").string() + ": it was removed during the run"));
}

TEST(LogFolder, IsNamedAfterItsPool) {
  EXPECT_EQ(log_folder("logs", {.key = "cpu/2", .generation = 3}), "logs/pools/cpu-2-gen3");
}

TEST(LogFolder, OnlyLogsOfAnEarlierRunAreRemoved) {
  const TemporaryFolder folder;
  const auto old = log_folder(folder.path(), {.key = "cuda/16", .generation = 12});
  const auto mixed = log_folder(folder.path(), {.key = "cpu/2", .generation = 1});
  for (const auto& path : {old, mixed, folder / "pools/mine"}) std::filesystem::create_directories(path);
  for (const auto& path : {old, mixed}) write_file(path / "rank0.stdout.log", "old");
  write_file(old / "rank10.stderr.log", "old");
  write_file(old / "launcher.stderr.log", "old");
  write_file(folder / "precious", "");
  std::filesystem::create_symlink(folder / "precious", old / "rank1.stderr.log");
  write_file(mixed / "notes", "mine");
  write_file(folder / "pools/mine/rank0.stdout.log", "mine");
  remove_old_logs(folder.path());
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_FALSE(std::filesystem::exists(mixed / "rank0.stdout.log"));
  for (const char* kept : {"precious", "pools/cpu-2-gen1/notes", "pools/mine/rank0.stdout.log"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / kept)) << kept;
  }
  remove_old_logs(folder / "none");
}

}  // namespace
}  // namespace cp_pool
