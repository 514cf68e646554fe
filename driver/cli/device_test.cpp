#include "driver/cli/device.h"

#include <fstream>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "driver/testing/command_error.h"

namespace cp_pool {
namespace {

using namespace ::testing;

// Makes a folder like /dev of a machine with two GPUs.
class DeviceFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(dev_);
    for (const char* name : {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia", "null"})
      std::ofstream{dev_ / name};
  }
  void TearDown() override { std::filesystem::remove_all(dev_); }

  std::filesystem::path dev_ = std::filesystem::temp_directory_path() / fmt::format("cp-pool-device-test-{}", getpid());
};

TEST_F(DeviceFiles, WithANumberAreGpus) {
  EXPECT_EQ(count_gpus(dev_, nullptr), 2);
  EXPECT_EQ(count_gpus(dev_ / "nowhere", nullptr), 0);
}

TEST_F(DeviceFiles, CountAsFarAsCudaVisibleDevicesAllows) {
  EXPECT_EQ(count_gpus(dev_, ""), 0);
  EXPECT_EQ(count_gpus(dev_, "-1"), 0);
  EXPECT_EQ(count_gpus(dev_, "NoDevFiles"), 0);
  EXPECT_EQ(count_gpus(dev_, "0,-1,1"), 1);
  EXPECT_EQ(count_gpus(dev_, "1"), 1);
  EXPECT_EQ(count_gpus(dev_, "0,1"), 2);
  EXPECT_EQ(count_gpus(dev_, "0,1,2,3"), 2);
}

TEST(RanksToTry, AreTwoUnlessThereIsASingleGpu) {
  EXPECT_EQ(ranks_to_try("cpu", 0), 2);
  EXPECT_EQ(ranks_to_try("cpu", 1), 2);
  EXPECT_EQ(ranks_to_try("cuda", 0), 1);
  EXPECT_EQ(ranks_to_try("cuda", 1), 1);
  EXPECT_EQ(ranks_to_try("cuda", 2), 2);
  EXPECT_EQ(ranks_to_try("cuda", 8), 2);
}

TEST(GpusToShare, AreThoseOfAMachineWithFewerThanRanks) {
  RunConfig config;
  config.device = "cuda";
  EXPECT_EQ(gpus_to_share(config, 4, 1), 1);
  EXPECT_EQ(gpus_to_share(config, 8, 3), 3);
  EXPECT_EQ(gpus_to_share(config, 2, 2), 0);
  EXPECT_EQ(gpus_to_share(config, 2, 0), 0);
  config.share_gpus = false;
  EXPECT_EQ(gpus_to_share(config, 4, 1), 0);
  config = RunConfig();
  EXPECT_EQ(gpus_to_share(config, 4, 1), 0);
}

TEST(Device, NamedByTheUserIsTaken) {
  for (const int gpus : {0, 2}) {
    EXPECT_EQ(choose_device("cpu", true, gpus, true).device, "cpu");
    EXPECT_EQ(choose_device("cuda", true, gpus, false).device, "cuda");
    EXPECT_EQ(choose_device("cuda", true, gpus, false).warning, "");
  }
}

TEST(Device, AutoTakesGpusThatTheWorkerCanUse) {
  EXPECT_EQ(choose_device("auto", true, 2, true).device, "cuda");
  EXPECT_EQ(choose_device("auto", false, 2, false).device, "cuda") << "a worker of the user's";
  EXPECT_EQ(choose_device("auto", true, 0, true).device, "cpu");
  EXPECT_EQ(choose_device("auto", true, 0, false).warning, "");
}

TEST(Device, AutoSaysWhyItLeavesGpusAlone) {
  const DeviceChoice choice = choose_device("auto", true, 2, false);
  EXPECT_EQ(choice.device, "cpu");
  EXPECT_EQ(
      choice.warning,
      "ranks run on the CPU: this machine has 2 GPUs, but the worker was built without its CUDA part (with nvcc of "
      "CUDA 13 installed: tools/build release cuda_part)");
}

TEST(GpuList, NamesSingleOnesAndRangesInItsOrder) {
  EXPECT_EQ(parse_gpu_list("0"), std::vector{0});
  EXPECT_EQ(parse_gpu_list("6,0-3"), (std::vector{6, 0, 1, 2, 3}));
}

TEST(GpuList, IsNothingElse) {
  for (const char* text :
       {"", ",", "0,", "1-", "-1", "3-1", "0,0", "1-3,2", "a", "0x1", "1 ,2", "0-9999999", "1-2-3"}) {
    EXPECT_EQ(parse_gpu_list(text), std::nullopt) << text;
  }
}

class VisibleGpus : public testing::Test {
 protected:
  VisibleGpus() {
    std::filesystem::create_directory(dev);
    for (const char* name : {"nvidia0", "nvidia1", "nvidia2", "nvidiactl"}) std::ofstream(dev / name).put('x');
  }
  ~VisibleGpus() override { std::filesystem::remove_all(dev); }

  std::filesystem::path dev = std::filesystem::temp_directory_path() / fmt::format("cp-pool-gpus-{}", ::getpid());
};

TEST_F(VisibleGpus, AreThoseOfTheMachineOrOfTheEnvironment) {
  EXPECT_THAT(visible_gpu_names(dev, nullptr), ElementsAre("0", "1", "2"));
  EXPECT_THAT(visible_gpu_names(dev, "2,GPU-1d2c"), ElementsAre("2", "GPU-1d2c"));
  EXPECT_THAT(visible_gpu_names(dev, ""), IsEmpty());
  EXPECT_THAT(visible_gpu_names(dev / "none", nullptr), IsEmpty());
}

TEST(ChosenGpus, AreNamedByTheirPlaceAmongThoseThatAreShown) {
  EXPECT_THAT(chosen_gpus({2, 0}, {"7", "GPU-1d2c", "5"}), ElementsAre("5", "7"));
  EXPECT_THAT(chosen_gpus({}, {"7", "GPU-1d2c"}), ElementsAre("7", "GPU-1d2c"));
  EXPECT_THAT(chosen_gpus({6, 7}, {}), ElementsAre("6", "7"));
}

TEST(ChosenGpus, AreRefusedWhereThereIsNone) {
  EXPECT_THAT(test::command_error(ExitCode::usage, [] { chosen_gpus({0, 2}, {"0", "1"}); }),
              HasSubstr("--gpus: there is no GPU 2; 2 are visible, numbered from 0"));
}

}  // namespace

}  // namespace cp_pool
