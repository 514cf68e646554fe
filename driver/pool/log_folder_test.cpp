#include "driver/pool/log_folder.h"

#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"

namespace cp_pool {
namespace {

using test::TemporaryFolder;
using test::write_file;

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
