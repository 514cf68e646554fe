#include <cstdlib>

#include <gmock/gmock.h>

#include "worker/rank_device.h"

namespace cp_pool {
namespace {

using testing::HasSubstr;

std::vector<int> gpus_of(int ranks, int gpus) {
  std::vector<int> indices;
  for (int rank = 0; rank < ranks; ++rank) indices.push_back(gpu_of_rank(rank, ranks, gpus));
  return indices;
}

TEST(GpuOfRank, IsItsOwnWhereThereAreEnough) {
  EXPECT_EQ(gpus_of(4, 4), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(gpus_of(2, 8), (std::vector{0, 1}));
}

TEST(GpuOfRank, IsSharedByNeighboursWhereThereAreNot) {
  EXPECT_EQ(gpus_of(4, 1), (std::vector{0, 0, 0, 0}));
  EXPECT_EQ(gpus_of(8, 4), (std::vector{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(gpus_of(4, 3), (std::vector{0, 0, 1, 2}));
  EXPECT_EQ(gpus_of(5, 2), (std::vector{0, 0, 0, 1, 1}));
}

class ChooseOwnGpu : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("CP_POOL_HIDE_GPUS");
    unsetenv("CP_POOL_PEER_COPIES");
    setenv("CUDA_VISIBLE_DEVICES", "7,6,5", 1);
    set_ranks(2);
  }
  void TearDown() override {
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CP_POOL_HIDE_GPUS");
    unsetenv("CP_POOL_PEER_COPIES");
  }
  void set_ranks(int ranks) {
    environment_.device = "cuda";
    environment_.rank = environment_.local_rank = ranks - 1;
    environment_.world_size = environment_.local_world_size = ranks;
  }
  static std::string visible() { return std::getenv("CUDA_VISIBLE_DEVICES"); }

  protocol::RankEnvironment environment_;
};

TEST_F(ChooseOwnGpu, LeavesARankItsOwn) {
  const OwnGpu gpu = choose_own_gpu(environment_, "");
  EXPECT_TRUE(gpu.is_only);
  EXPECT_EQ(gpu.index, 0);
  EXPECT_EQ(gpu.shared_gpus, 0);
  EXPECT_EQ(gpu.ranks_on_it, 1);
  EXPECT_EQ(visible(), "6");
}

TEST_F(ChooseOwnGpu, NamesGpusAsTheEnvironmentDoes) {
  setenv("CUDA_VISIBLE_DEVICES", "GPU-8932f937,GPU-1d2c,MIG-77", 1);
  set_ranks(3);
  EXPECT_TRUE(choose_own_gpu(environment_, "").is_only);
  EXPECT_EQ(visible(), "MIG-77");
}

TEST_F(ChooseOwnGpu, LeavesAllToThoseWhoTurnItOff) {
  setenv("CP_POOL_HIDE_GPUS", "off", 1);
  const OwnGpu gpu = choose_own_gpu(environment_, "");
  EXPECT_FALSE(gpu.is_only);
  EXPECT_EQ(gpu.index, 1);
  EXPECT_EQ(visible(), "7,6,5");
}

TEST_F(ChooseOwnGpu, LeavesAllToRanksOnTheCpu) {
  environment_.device = "cpu";
  EXPECT_FALSE(choose_own_gpu(environment_, "").is_only);
  EXPECT_EQ(visible(), "7,6,5");
}

TEST_F(ChooseOwnGpu, RefusesAnotherWord) {
  setenv("CP_POOL_HIDE_GPUS", "yes", 1);
  EXPECT_THROW((void)choose_own_gpu(environment_, ""), protocol::EnvironmentError);
}

// CUDA ignores all entries of CUDA_VISIBLE_DEVICES after one that names no GPU.
TEST_F(ChooseOwnGpu, LetsRanksShareWhatIsThere) {
  setenv("CUDA_VISIBLE_DEVICES", "3,-1,1", 1);
  set_ranks(4);
  const OwnGpu gpu = choose_own_gpu(environment_, "");
  EXPECT_TRUE(gpu.is_only);
  EXPECT_EQ(gpu.index, 0);
  EXPECT_EQ(gpu.shared_gpus, 1);
  EXPECT_EQ(gpu.ranks_on_it, 4);
  EXPECT_EQ(visible(), "3");
}

TEST_F(ChooseOwnGpu, CountsTheRanksOfEachGpu) {
  set_ranks(8);
  environment_.rank = environment_.local_rank = 0;
  EXPECT_EQ(choose_own_gpu(environment_, 3, "").ranks_on_it, 3);
  environment_.rank = environment_.local_rank = 7;
  EXPECT_EQ(choose_own_gpu(environment_, 3, "").ranks_on_it, 2);
  EXPECT_EQ(choose_own_gpu(environment_, 3, "").shared_gpus, 3);
}

TEST_F(ChooseOwnGpu, SaysWhyRanksCannotShare) {
  const auto why_not = [&](const std::string& forbidden) {
    const OwnGpu gpu = choose_own_gpu(environment_, 1, forbidden);
    EXPECT_EQ(gpu.shared_gpus, 0);
    EXPECT_FALSE(gpu.is_only);
    return gpu.share_obstacle;
  };
  EXPECT_THAT(why_not("CP_POOL_PEER_COPIES is off"), HasSubstr("CP_POOL_PEER_COPIES is off"));
  environment_.world_size = 4;
  EXPECT_THAT(why_not(""), HasSubstr("on one host"));
  environment_.share_gpus = false;
  EXPECT_THAT(why_not(""), HasSubstr("--share-gpus"));
}

TEST_F(ChooseOwnGpu, HidesNothingWhereRanksCannotShare) {
  setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  environment_.share_gpus = false;
  EXPECT_FALSE(choose_own_gpu(environment_, "").is_only);
  EXPECT_EQ(visible(), "7");
}

TEST_F(ChooseOwnGpu, AsksCudaWhereNothingShowsTheGpus) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const OwnGpu gpu = choose_own_gpu(environment_, "");
  EXPECT_FALSE(gpu.is_only);
  EXPECT_EQ(gpu.index, 1);
  EXPECT_EQ(gpu.shared_gpus, 0);
}

}  // namespace
}  // namespace cp_pool
