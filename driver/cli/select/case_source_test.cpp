#include "driver/cli/select/case_source.h"

#include <sys/stat.h>

#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"

namespace cp_pool {
namespace {

TEST(IsId, IsTrueOfWhatIsNoFile) {
  EXPECT_TRUE(is_id("quick/causal/p2p/cp2/bshd/fp32"));
  EXPECT_FALSE(is_id("-"));
  EXPECT_FALSE(is_id("missing.json"));
}

TEST(IsId, IsFalseOfFilesAndPipesAndTrueOfFolders) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "case", "{}");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(is_id((folder / "case").string()));
  EXPECT_FALSE(is_id((folder / "pipe").string())) << "as the shell gives for <(..)";
  EXPECT_TRUE(is_id(folder.path().string()));
}

}  // namespace
}  // namespace cp_pool
