#include "driver/cli/output_check.h"

#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"

namespace cp_pool::test {
namespace {

TEST(FileIdentity, IsThatOfTheFileWhateverLeadsToIt) {
  const TemporaryFolder folder;
  write_file(folder / "a", "");
  write_file(folder / "b", "");
  std::filesystem::create_symlink("a", folder / "symbolic");
  std::filesystem::create_hard_link(folder / "a", folder / "hard");
  std::filesystem::create_directory(folder / "sub");
  std::filesystem::create_directory_symlink(folder.path(), folder / "sub/up");
  const auto a = identify(folder / "a");
  ASSERT_TRUE(a);
  for (const char* other : {"./a", "sub/../a", "symbolic", "hard", "sub/up/a"}) {
    EXPECT_EQ(identify(folder / other), a) << other;
  }
  EXPECT_NE(identify(folder / "b"), a);
}

TEST(FileIdentity, OfAFileThatIsNotThereIsWhereItWouldBeMade) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("new", folder / "dangling");
  std::filesystem::create_symlink("dangling", folder / "twice");
  const auto place = identify(folder / "new");
  ASSERT_TRUE(place);
  for (const char* other : {"./new", "none/../new", "dangling", "twice"}) {
    EXPECT_EQ(identify(folder / other), place) << other;
  }
  EXPECT_NE(identify(folder / "other"), place);
  EXPECT_EQ(identify(folder / "none/new"), identify(folder / "none/./new"));
  EXPECT_NE(identify(folder / "none/new"), place);
}

TEST(FileIdentity, IsNoneOfWhatIsNoRegularFile) {
  const TemporaryFolder folder;
  write_file(folder / "file", "");
  std::filesystem::create_symlink("loop", folder / "loop");
  EXPECT_FALSE(identify("/dev/null"));
  EXPECT_FALSE(identify(folder.path()));
  EXPECT_FALSE(identify(folder / "file/below"));
  EXPECT_FALSE(identify(folder / "loop"));
}

}  // namespace
}  // namespace cp_pool::test
