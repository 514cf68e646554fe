#include "driver/ranks/launcher.h"

#include <array>
#include <cstdio>
#include <unistd.h>

#include <gmock/gmock.h>

namespace cp_pool {
namespace {

using namespace ::testing;

using Words = std::vector<std::string>;

Launcher custom(Words words) {
  return {LauncherKind::custom, std::move(words)};
}

TEST(Launcher, ACustomOneFillsItsPlaceholders) {
  const LaunchPlan launch{
      .world_size = 4, .hosts = {{"a", 3}, {"b", 1}}, .rendezvous = "a:20001", .worker = {"/bin/w", "--x", "it's"}};
  EXPECT_THAT(launch_words(custom({"go", "-n{world_size}", "{nodes}x{ranks_per_node}", "--at={rendezvous}", "{hosts}",
                                   "{{{nodes}}}", "--", "{worker}"}),
                           launch),
              ElementsAre("go", "-n4", "2x3", "--at=a:20001", "a,b", "{2}", "--", "/bin/w", "--x", "it's"));
  EXPECT_THAT(launch_words(custom({"sh", "-c", "exec {worker}"}), launch),
              ElementsAre("sh", "-c", R"(exec '/bin/w' '--x' 'it'\''s')"));
}

TEST(Launcher, OnThisHostAloneAllRanksAreOnOneNode) {
  const LaunchPlan launch{.world_size = 4, .worker = {"w"}};
  EXPECT_THAT(launch_words(custom({"go", "{nodes}", "{ranks_per_node}", "{worker}"}), launch),
              ElementsAre("go", "1", "4", "w"));
}

TEST(Launcher, ATemplateThatCannotWorkIsRefusedWithTheReason) {
  EXPECT_EQ(template_error({"go", "{worker}"}), "");
  EXPECT_EQ(template_error({"sh", "-c", "cd /x && exec {worker}"}), "");
  EXPECT_THAT(template_error({"go", "{ranks}", "{worker}"}), HasSubstr("there is no {ranks}"));
  EXPECT_THAT(template_error({"go", "{world_size}"}), HasSubstr("no {worker}"));
  EXPECT_THAT(template_error({"go", "a}", "{worker}"}), HasSubstr("without a '{'"));
  EXPECT_THAT(template_error({"go", "{a", "{worker}"}), HasSubstr("without a '}'"));
  EXPECT_THAT(template_error({"{worker}"}), HasSubstr("no program"));
}

TEST(Launcher, MpirunIsToldHostsAndVariables) {
  EXPECT_THAT(launch_words({LauncherKind::mpirun}, {.world_size = 2, .worker = {"w"}, .variables = {"CP_POOL_TAG"}}),
              ElementsAre("mpirun", "--bind-to", "none", "--oversubscribe", "-np", "2", "-x", "CP_POOL_TAG", "w"));
  EXPECT_THAT(launch_words({LauncherKind::mpirun},
                           {.world_size = 3, .hosts = {{"a", 2}, {"b", 1}}, .worker = {"w"}, .as_root = true}),
              ElementsAre("mpirun", "--bind-to", "none", "--oversubscribe", "-np", "3", "--allow-run-as-root", "--host",
                          "a:2,b:1", "--map-by", "slot", "w"));
}

TEST(Launcher, SrunGivesStdinToRank0AndTakesStdoutOfItAlone) {
  const Words words =
      launch_words({LauncherKind::srun}, {.world_size = 4, .hosts = {{"a", 2}, {"b", 2}}, .worker = {"w"}});
  EXPECT_THAT(words, testing::IsSupersetOf({"--ntasks=4", "--input=0", "--output=0", "--error=all", "--overlap",
                                            "--nodes=2", "--ntasks-per-node=2", "--nodelist=a,b"}));
  EXPECT_EQ(words.back(), "w");
}

TEST(Launcher, IsCalledByItsProgram) {
  EXPECT_EQ(name_of({LauncherKind::srun}), "srun");
  EXPECT_EQ(name_of(custom({"/opt/bin/go", "{worker}"})), "go");
}

const std::vector<HostShare> kHosts{{"a", 2}, {"b", 4}, {"c", 2}};

TEST(Placing, RanksAreWhereTheSlotsAre) {
  EXPECT_THAT(place(2, {2, 3}, kHosts), ElementsAre(HostShare{"b", 2, {0, 1}}));
  EXPECT_THAT(place(3, {1, 6, 7}, kHosts), ElementsAre(HostShare{"a", 1, {1}}, HostShare{"c", 2, {0, 1}}));
}

TEST(Placing, WithoutSlotsHostsAreFilledInOrder) {
  EXPECT_THAT(place(2, {}, kHosts), ElementsAre(HostShare{"a", 2}));
  EXPECT_THAT(place(4, {}, kHosts), ElementsAre(HostShare{"a", 2}, HostShare{"b", 2}));
}

TEST(Placing, MoreRanksThanSlotsAreDealtOutEvenly) {
  EXPECT_THAT(place(11, {0, 1, 2, 3, 4, 5, 6, 7}, kHosts),
              ElementsAre(HostShare{"a", 3, {0, 1}}, HostShare{"b", 5, {0, 1, 2, 3}}, HostShare{"c", 3, {0, 1}}));
  EXPECT_THAT(place(5, {0, 1}, {{"a", 2}}), ElementsAre(HostShare{"a", 5, {0, 1}}));
}

std::string own_host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Returns what a worker that prints its GPUs writes on this host, errors included.
std::string seen_gpus(const std::vector<HostShare>& hosts, const std::string& setting) {
  std::string line = setting;
  for (const std::string& word : restrict_gpus(hosts, {"sh", "-c", "echo sees $CUDA_VISIBLE_DEVICES"})) {
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
  EXPECT_THAT(restrict_gpus({}, {"worker", "--x"}), ElementsAre("worker", "--x"));
  EXPECT_THAT(restrict_gpus({{"a", 2}}, {"worker"}), ElementsAre("worker"));
}

}  // namespace
}  // namespace cp_pool
