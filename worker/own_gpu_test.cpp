#include "worker/own_gpu.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

constexpr auto kUnset = std::nullopt;

TEST(OwnGpu, IsNamedByTheLocalRank) {
  EXPECT_EQ(name_of_own_gpu(kUnset, 8, 5, 8), "5");
  EXPECT_EQ(name_of_own_gpu(kUnset, 8, 0, 1), "0");
}

TEST(OwnGpu, IsOneOfThoseThatAreVisible) {
  EXPECT_EQ(name_of_own_gpu("3,1", 8, 0, 2), "3");
  EXPECT_EQ(name_of_own_gpu("3,1", 8, 1, 2), "1");
  EXPECT_EQ(name_of_own_gpu("GPU-8932f937,GPU-1d2c,MIG-77", 8, 2, 3), "MIG-77");
  EXPECT_EQ(name_of_own_gpu("4,5,6", 0, 1, 2), "5");
}

// All stay visible then, and CUDA is asked how many they are.
TEST(OwnGpu, IsNotNamedWhereRanksMayGoWithout) {
  EXPECT_EQ(name_of_own_gpu(kUnset, 2, 0, 4), std::nullopt);
  EXPECT_EQ(name_of_own_gpu(kUnset, 0, 0, 1), std::nullopt);
  EXPECT_EQ(name_of_own_gpu("0", 8, 0, 2), std::nullopt);
  EXPECT_EQ(name_of_own_gpu("", 8, 0, 1), std::nullopt);
  EXPECT_EQ(name_of_own_gpu("0,-1,1", 8, 0, 2), std::nullopt);
  EXPECT_EQ(name_of_own_gpu("0,x1", 8, 0, 2), std::nullopt);
}

class HideOtherGpus : public testing::Test {
 protected:
  void SetUp() override {
    environment_.device = "cuda";
    environment_.local_rank = 1;
    environment_.local_world_size = 2;
    setenv("CUDA_VISIBLE_DEVICES", "7,6,5", 1);
  }
  void TearDown() override {
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CP_POOL_HIDE_GPUS");
  }
  static std::string visible() { return std::getenv("CUDA_VISIBLE_DEVICES"); }

  protocol::RankEnvironment environment_;
};

TEST_F(HideOtherGpus, LeavesARankItsOwn) {
  const OwnGpu gpu = hide_other_gpus(environment_);
  EXPECT_TRUE(gpu.is_only);
  EXPECT_EQ(gpu.index, 0);
  EXPECT_EQ(visible(), "6");
}

TEST_F(HideOtherGpus, LeavesAllToThoseWhoTurnItOff) {
  setenv("CP_POOL_HIDE_GPUS", "off", 1);
  const OwnGpu gpu = hide_other_gpus(environment_);
  EXPECT_FALSE(gpu.is_only);
  EXPECT_EQ(gpu.index, 1);
  EXPECT_EQ(visible(), "7,6,5");
}

TEST_F(HideOtherGpus, LeavesAllToRanksOnTheCpu) {
  environment_.device = "cpu";
  EXPECT_FALSE(hide_other_gpus(environment_).is_only);
  EXPECT_EQ(visible(), "7,6,5");
}

TEST_F(HideOtherGpus, RefusesAnotherWord) {
  setenv("CP_POOL_HIDE_GPUS", "yes", 1);
  EXPECT_THROW((void)hide_other_gpus(environment_), protocol::EnvironmentError);
}

}  // namespace
}  // namespace cp_pool
