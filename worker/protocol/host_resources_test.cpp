#include "worker/protocol/host_resources.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

namespace cp_pool::protocol {
namespace {

class CoreQuota : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(root_ / "kubepods" / "pod"); }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void limit(const std::string& group, const std::string& text) { std::ofstream(root_ / group / "cpu.max") << text; }
  std::optional<double> quota(const std::string& own) {
    std::istringstream in(own);
    return core_quota(in, root_);
  }

  std::filesystem::path root_ =
      std::filesystem::path(testing::TempDir()) / ("usable_cores_test_" + std::to_string(getpid()));
};

TEST_F(CoreQuota, IsThatOfTheOwnGroup) {
  limit("kubepods/pod", "150000 100000\n");
  EXPECT_EQ(quota("0::/kubepods/pod\n"), 1.5);
}

TEST_F(CoreQuota, IsTheSmallestOfTheGroupsAround) {
  limit("kubepods", "400000 100000\n");
  limit("kubepods/pod", "max 100000\n");
  EXPECT_EQ(quota("12:cpu:/elsewhere\n0::/kubepods/pod\n"), 4);
  limit("", "200000 100000\n");
  EXPECT_EQ(quota("0::/kubepods/pod\n"), 2);
}

TEST_F(CoreQuota, InAContainerIsThatOfTheRoot) {
  limit("", "50000 100000\n");
  EXPECT_EQ(quota("0::/\n"), 0.5);
  EXPECT_EQ(quota("0::/a/group/that/is/not/mounted\n"), 0.5);
}

TEST_F(CoreQuota, IsNoneWithoutALimit) {
  EXPECT_EQ(quota("0::/kubepods/pod\n"), std::nullopt);
  limit("kubepods/pod", "max 100000\n");
  EXPECT_EQ(quota("0::/kubepods/pod\n"), std::nullopt);
  limit("kubepods/pod", "100000 0\n");
  EXPECT_EQ(quota("0::/kubepods/pod\n"), std::nullopt);
  EXPECT_EQ(quota("4:cpu,cpuacct:/kubepods/pod\n"), std::nullopt) << "version 1";
  EXPECT_EQ(quota(""), std::nullopt);
}

TEST(UsableCores, AreAtLeastOne) {
  EXPECT_GE(usable_cores(), 1);
}

}  // namespace
}  // namespace cp_pool::protocol
