#include "driver/cli/commands/resource_limits.h"

#include <sys/resource.h>

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

const std::vector<ResourceLimit> kLimits{
    {"open files", 1024, "-n"}, {"processes", 100, "-u"}, {"address space", 1 << 20, "-v"}};

std::string behind(std::string_view said, const std::vector<ResourceLimit>& limits = kLimits) {
  const auto limit = limit_behind(said, limits);
  return limit ? limit_text(*limit) : "";
}

TEST(LimitBehind, IsTheOneThatWhatWasSaidPointsAt) {
  EXPECT_EQ(behind("rank 0: socket: Too many open files"), "open files: 1024");
  EXPECT_EQ(behind("cannot fork: Resource temporarily unavailable"), "processes: 100");
  EXPECT_EQ(behind("libtorch_cpu.so: failed to map segment from shared object"), "address space: 1048576");
  EXPECT_EQ(behind("no such device"), "");
  EXPECT_EQ(behind("cannot fork: Resource temporarily unavailable", {}), "") << "no limit is set";
}

TEST(LimitBehind, IsTheOpenFilesWhereARankCannotDoWithThem) {
  EXPECT_EQ(behind("not ready", {{"open files", 63, "-n"}}), "open files: 63");
  EXPECT_EQ(behind("not ready", {{"open files", 64, "-n"}}), "");
}

TEST(ResourceLimits, AreThoseOfThisProcess) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 32, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto limits = resource_limits();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(limits.empty());
  EXPECT_EQ(limit_text(limits.front()), "open files: 32");
  EXPECT_EQ(limits.front().shell_option, "-n");
}

}  // namespace
}  // namespace cp_pool
