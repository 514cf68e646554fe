#include "driver/os/gpu_links.h"

#include <gmock/gmock.h>

namespace cp_pool {
namespace {

using namespace ::testing;

TEST(GpuLinks, AreThoseOfTheDriversLibrary) {
  const GpuLinks links = gpu_links({"0", "GPU-second", "3"}, CP_POOL_FAKE_NVML);
  EXPECT_EQ(links.why_unknown, "");
  EXPECT_THAT(links.distances, ElementsAre(ElementsAre(0, 0, 5), ElementsAre(0, 0, 5), ElementsAre(5, 5, 0)));
}

TEST(GpuLinks, AreUnknownWithoutTheLibraryOrAGpu) {
  const GpuLinks none = gpu_links({"0", "1"}, "libno-such-library.so");
  EXPECT_THAT(none.distances, IsEmpty());
  EXPECT_EQ(none.why_unknown, "libno-such-library.so cannot be loaded");
  const GpuLinks missing = gpu_links({"0", "4"}, CP_POOL_FAKE_NVML);
  EXPECT_THAT(missing.distances, IsEmpty());
  EXPECT_THAT(missing.why_unknown, HasSubstr("nvmlDeviceGetHandleByIndex_v2 has failed with status 2"));
}

TEST(GpuLinks, AreToldByThePlacesOfTheGpus) {
  const auto text = [](const std::vector<std::string>& names) {
    return nvlink_text(gpu_links(names, CP_POOL_FAKE_NVML));
  };
  EXPECT_EQ(text({"0", "1", "2", "3"}), "NVLink joins 0-1 and 2-3");
  EXPECT_EQ(text({"0", "2", "1"}), "NVLink joins 0,2");
  EXPECT_EQ(text({"2", "3"}), "NVLink joins all");
  EXPECT_EQ(text({"0", "2"}), "no NVLink");
  EXPECT_EQ(text({"9", "2"}),
            "whether NVLink joins them is not known: nvmlDeviceGetHandleByIndex_v2 has failed with status 2");
}

}  // namespace
}  // namespace cp_pool
