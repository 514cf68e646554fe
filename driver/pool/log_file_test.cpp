#include "driver/pool/log_file.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"

namespace cp_pool {
namespace {

using test::read_file;
using test::TemporaryFolder;
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

}  // namespace
}  // namespace cp_pool
