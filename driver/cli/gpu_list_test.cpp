#include "driver/cli/gpu_list.h"

#include <fstream>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/core/exit_code.h"

namespace cp_pool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
  EXPECT_THAT(chosen_gpus({6, 7}, {}), ElementsAre("6", "7"));
}

TEST(ChosenGpus, AreRefusedWhereThereIsNone) {
  try {
    chosen_gpus({0, 2}, {"0", "1"});
    FAIL();
  } catch (const CommandError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--gpus: there is no GPU 2; 2 are visible, numbered from 0"));
  }
}

}  // namespace
}  // namespace cp_pool
