#include "driver/process/folder_watch.h"

#include <filesystem>
#include <poll.h>

#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"

namespace cp_pool {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using test::write_file;

bool wakes(FolderWatch& watch) {
  pollfd waiting{watch.fd(), POLLIN, 0};
  const bool readable =
      ::poll(&waiting, 1, 0) == 1;  // the kernel queues an event before the call that causes it returns
  EXPECT_EQ(watch.take(), readable);
  return readable;
}

TEST(FolderWatch, WakesForWritingReplacingRemovingAndCreating) {
  const TemporaryFolder folder;
  const fs::path file = folder / "a";
  write_file(file, "one");
  FolderWatch watch;
  if (watch.fd() < 0) GTEST_SKIP() << "this machine has no inotify instance left";
  watch.watch({file});
  EXPECT_FALSE(wakes(watch));
  write_file(file, "two");
  EXPECT_TRUE(wakes(watch));
  EXPECT_FALSE(wakes(watch));
  write_file(folder / "new", "three");
  fs::rename(folder / "new", file);
  EXPECT_TRUE(wakes(watch));
  fs::remove(file);
  EXPECT_TRUE(wakes(watch));
  write_file(file, "four");
  EXPECT_TRUE(wakes(watch));
}

TEST(FolderWatch, ALinkIsWatchedOnBothEnds) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "links");
  fs::create_directories(folder / "files");
  write_file(folder / "files/a", "one");
  fs::create_symlink(folder / "files/a", folder / "links/a");
  FolderWatch watch;
  if (watch.fd() < 0) GTEST_SKIP() << "this machine has no inotify instance left";
  watch.watch({folder / "links/a"});
  write_file(folder / "files/a", "two");
  EXPECT_TRUE(wakes(watch));
  fs::remove(folder / "links/a");
  EXPECT_TRUE(wakes(watch));
}

TEST(FolderWatch, AFolderThatWasMadeAnewIsWatchedByTheNextCall) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "build");
  FolderWatch watch;
  if (watch.fd() < 0) GTEST_SKIP() << "this machine has no inotify instance left";
  watch.watch({folder / "build/a", folder / "none/b"});
  fs::remove_all(folder / "build");
  EXPECT_TRUE(wakes(watch));
  fs::create_directories(folder / "build");
  watch.watch({folder / "build/a"});
  (void)watch.take();
  write_file(folder / "build/a", "one");
  EXPECT_TRUE(wakes(watch));
}

}  // namespace
}  // namespace cp_pool
