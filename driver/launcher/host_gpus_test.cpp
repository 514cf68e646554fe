#include "driver/launcher/host_gpus.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string own_host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Returns what a worker that prints its GPUs writes on this host, errors included.
std::string seen_gpus(const std::vector<HostShare>& hosts, const std::string& setting) {
  std::string line = setting;
  for (const std::string& word : on_gpus_of_slots(hosts, {"sh", "-c", "echo sees $CUDA_VISIBLE_DEVICES"})) {
    line += " '";
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  FILE* const pipe = ::popen((line + " 2>&1").c_str(), "r");
  std::array<char, 256> text{};
  std::string out;
  while (std::fgets(text.data(), text.size(), pipe) != nullptr) out += text.data();
  ::pclose(pipe);
  return out;
}

TEST(HostGpus, AreThoseOfTheSlotsOfThisHost) {
  const std::vector<HostShare> hosts{{"other", 2, {4, 5}}, {own_host(), 2, {1, 3}}};
  EXPECT_EQ(seen_gpus(hosts, "env -u CUDA_VISIBLE_DEVICES -u SLURMD_NODENAME"), "sees 1,3\n");
}

TEST(HostGpus, AreCountedAmongThoseThatAreVisible) {
  EXPECT_EQ(seen_gpus({{own_host(), 2, {1, 2}}}, "env -u SLURMD_NODENAME CUDA_VISIBLE_DEVICES=4,GPU-a,6"),
            "sees GPU-a,6\n");
}

TEST(HostGpus, AHostIsCalledWhatSlurmCallsIt) {
  const std::vector<HostShare> hosts{{own_host(), 1, {0}}, {"node7.cluster", 1, {5}}};
  EXPECT_EQ(seen_gpus(hosts, "env -u CUDA_VISIBLE_DEVICES SLURMD_NODENAME=node7"), "sees 5\n");
}

TEST(HostGpus, AHostThatIsNotOfThemStartsNothing) {
  const std::string said = seen_gpus({{"a", 1, {0}}, {"b", 1, {0}}}, "env -u SLURMD_NODENAME");
  EXPECT_THAT(said, HasSubstr("is none of the hosts a, b"));
  EXPECT_THAT(said, testing::Not(HasSubstr("sees")));
}

TEST(HostGpus, WithoutSlotsTheWorkerIsAsItWas) {
  EXPECT_THAT(on_gpus_of_slots({}, {"worker", "--x"}), ElementsAre("worker", "--x"));
  EXPECT_THAT(on_gpus_of_slots({{"a", 2}}, {"worker"}), ElementsAre("worker"));
}

}  // namespace
}  // namespace cp_pool
