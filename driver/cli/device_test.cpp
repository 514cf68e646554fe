#include "driver/cli/device.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

// A folder like /dev of a machine with two GPUs.
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
  EXPECT_EQ(count_gpus(dev_, "1"), 1);
  EXPECT_EQ(count_gpus(dev_, "0,1"), 2);
  EXPECT_EQ(count_gpus(dev_, "0,1,2,3"), 2);
}

TEST(Device, NamedByTheUserIsTaken) {
  EXPECT_EQ(resolve_device("cpu"), "cpu");
  EXPECT_EQ(resolve_device("cuda"), "cuda");
}

}  // namespace
}  // namespace cp_pool
