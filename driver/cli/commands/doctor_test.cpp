#include "driver/cli/commands/doctor.h"

#include <sys/resource.h>

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"

namespace cp_pool::test {
namespace {

using ::testing::HasSubstr;

TEST(FindDevices, CountsCoresMemoryAndGpus) {
  const TemporaryFolder proc;
  write_file(proc / "cpuinfo", "processor\t: 0\nmodel name\t: Some CPU\nprocessor\t: 1\nmodel name\t: Some CPU\n");
  write_file(proc / "meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\n");
  for (const char* gpu : {"0", "1"}) {
    std::filesystem::create_directories(proc / "driver/nvidia/gpus" / gpu);
    write_file(proc / "driver/nvidia/gpus" / gpu / "information", "Model: \t\t NVIDIA H200\nIRQ: 5\n");
  }
  const auto findings = find_devices(proc.path(), 2);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].text, "2 cores (Some CPU), 16.0 GiB memory");
  EXPECT_EQ(findings[1].text, "2 x NVIDIA H200");
  EXPECT_EQ(find_devices(proc.path(), 1)[0].text, "2 cores, 1 of them usable (Some CPU), 16.0 GiB memory");
}

TEST(FindDevices, NoGpuIsNothingWrong) {
  const TemporaryFolder proc;
  const auto findings = find_devices(proc.path(), 2);
  EXPECT_EQ(findings[1].state, Finding::State::note);
  EXPECT_EQ(findings[1].text, "none; cases run on CPU ranks");
}

TEST(FindLibraries, AllOfAProgramThatRunsAreFound) {
  EXPECT_EQ(find_libraries("/proc/self/exe").state, Finding::State::good);
}

TEST(FindPackages, NamesThoseThatAreNotInstalledWithTheCommandThatInstallsThem) {
  const TemporaryFolder folder;
  write_file(folder / "list", "# comment\nlibc6\nno-such-package-1\nno-such-package-2\n");
  const Finding finding = find_packages(folder / "list");
  EXPECT_EQ(finding.state, Finding::State::missing);
  EXPECT_THAT(finding.text, HasSubstr("1 of 3 installed"));
  EXPECT_EQ(finding.remedy, "install with: apt-get install no-such-package-1 no-such-package-2");
}

TEST(FindingText, PutsTheRemedyBelowWhatIsMissing) {
  EXPECT_EQ(finding_text({"a", "there"}), "a          ok      there\n");
  EXPECT_EQ(finding_text({"b", "gone", Finding::State::missing, "install with: b"}),
            "b          MISSING gone\n"
            "                   install with: b\n");
}

const std::vector<ResourceLimit> kLimits{
    {"open files", 1024, "-n"}, {"processes", 100, "-u"}, {"address space", 1 << 20, "-v"}};

std::string behind(std::string_view said, const std::vector<ResourceLimit>& limits = kLimits) {
  const auto limit = limit_behind(said, limits);
  return limit ? limit->text() : "";
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
  EXPECT_EQ(limits.front().text(), "open files: 32");
  EXPECT_EQ(limits.front().shell_option, "-n");
}

}  // namespace
}  // namespace cp_pool::test
