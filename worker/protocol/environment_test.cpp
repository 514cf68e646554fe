#include "worker/protocol/environment.h"

#include <map>

#include <gmock/gmock.h>

#include "cases/testing/error_text.h"

namespace cp_pool::protocol {
namespace {

using Variables = std::map<std::string, std::string>;

RankEnvironment read(const Variables& variables) {
  return read_environment([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional{found->second};
  });
}

std::string error_of(const Variables& variables) {
  return test::error_text<EnvironmentError>([&] { read(variables); });
}

Variables torchrun() {
  return {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}};
}

TEST(Environment, ReadsWhatTheDriverWrites) {
  const RankEnvironment written{.rank = 1,
                                .world_size = 4,
                                .local_rank = 1,
                                .local_world_size = 2,
                                .master_addr = "127.0.0.1",
                                .master_port = 4711,
                                .protocol = {1, 3},
                                .master_fd = 5,
                                .tag = "tag",
                                .token = "0123456789abcdef0123456789abcdef",
                                .device = "cuda"};
  Variables variables;
  for (const auto& [name, value] : to_variables(written)) variables[name] = value;
  EXPECT_EQ(read(variables), written);
}

TEST(Environment, ReadsTorchrun) {
  const RankEnvironment e = read(torchrun());
  EXPECT_EQ(e.rank, 1);
  EXPECT_EQ(e.world_size, 2);
  EXPECT_EQ(e.local_world_size, 2) << "every rank is local unless LOCAL_WORLD_SIZE says otherwise";
  EXPECT_EQ(e.master_addr, "h");
  EXPECT_EQ(e.master_port, 29500);
  EXPECT_EQ(e.protocol, (VersionRange{kVersion, kVersion}));
  EXPECT_EQ(e.master_fd, std::nullopt);
}

TEST(Environment, ReadsSlurmWithTheLaunchingNodeAsMaster) {
  const RankEnvironment e = read({{"SLURM_PROCID", "3"},
                                  {"SLURM_NTASKS", "4"},
                                  {"SLURM_LOCALID", "1"},
                                  {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"},
                                  {"MASTER_PORT", "29500"}});
  EXPECT_EQ(e.rank, 3);
  EXPECT_EQ(e.world_size, 4);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.master_addr, "10.0.0.1");
}

TEST(Environment, KnowsThatAllRanksAreOnOneHostOnlyIfTheLauncherSaysSo) {
  const auto here = [](Variables variables, const Variables& more) {
    variables.insert(more.begin(), more.end());
    return read(variables).on_one_host;
  };
  EXPECT_FALSE(here(torchrun(), {}));
  EXPECT_FALSE(here(torchrun(), {{"LOCAL_WORLD_SIZE", "1"}}));
  EXPECT_TRUE(here(torchrun(), {{"LOCAL_WORLD_SIZE", "2"}}));
  const Variables slurm{{"SLURM_PROCID", "0"},          {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"},
                        {"SLURM_NTASKS_PER_NODE", "2"}, {"MASTER_ADDR", "h"},  {"MASTER_PORT", "29500"}};
  EXPECT_FALSE(here(slurm, {})) << "SLURM_NTASKS_PER_NODE may be that of the job";
  EXPECT_FALSE(here(slurm, {{"SLURM_STEP_NUM_NODES", "2"}}));
  EXPECT_TRUE(here(slurm, {{"SLURM_STEP_NUM_NODES", "1"}}));
}

TEST(Environment, PrefersOpenMpiToTheSlurmJobAroundIt) {
  const RankEnvironment e = read({{"OMPI_COMM_WORLD_RANK", "2"},
                                  {"OMPI_COMM_WORLD_SIZE", "8"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                  {"SLURM_PROCID", "0"},
                                  {"SLURM_NTASKS", "1"},
                                  {"SLURM_LOCALID", "0"},
                                  {"MASTER_ADDR", "h"},
                                  {"MASTER_PORT", "29500"}});
  EXPECT_EQ(e.rank, 2);
  EXPECT_EQ(e.world_size, 8);
  EXPECT_EQ(e.local_world_size, 4);
}

TEST(Environment, ErrorsNameTheVariableAndItsValue) {
  EXPECT_THAT(error_of({}), testing::StartsWith("RANK is not set"));
  const auto with = [](const char* name, const char* value) {
    Variables v = torchrun();
    v[name] = value;
    return error_of(v);
  };
  EXPECT_EQ(with("RANK", "2"), "RANK=\"2\": expected an integer in 0..1");
  EXPECT_EQ(with("RANK", "1x"), "RANK=\"1x\": expected an integer in 0..1");
  EXPECT_THAT(with("WORLD_SIZE", "0"), testing::HasSubstr("WORLD_SIZE=\"0\""));
  EXPECT_THAT(with("MASTER_PORT", "65536"),
              testing::HasSubstr("MASTER_PORT=\"65536\": expected an integer in 1..65535"));
  EXPECT_THAT(with("CP_POOL_PROTOCOL", "1"), testing::HasSubstr("expected MIN..MAX"));
  EXPECT_THAT(with("CP_POOL_PROTOCOL", "3..2"), testing::HasSubstr("minimum is above"));
  Variables no_master = torchrun();
  no_master.erase("MASTER_ADDR");
  EXPECT_THAT(error_of(no_master), testing::StartsWith("MASTER_ADDR is not set"));
  Variables no_size = torchrun();
  no_size.erase("WORLD_SIZE");
  EXPECT_THAT(error_of(no_size),
              testing::StartsWith("WORLD_SIZE is not set although RANK is; the driver or torchrun should"));
}

TEST(Environment, RanksMayShareAGpuUnlessTheyAreTold) {
  const auto share = [](std::optional<std::string> value) {
    return read_environment([&](const char* name) -> std::optional<std::string> {
      const std::string_view variable = name;
      if (variable == kEnvShareGpus) return value;
      if (variable == kEnvRank) return "0";
      if (variable == kEnvWorldSize) return "2";
      if (variable == kEnvLocalRank) return "0";
      if (variable == kEnvMasterAddr) return "127.0.0.1";
      if (variable == kEnvMasterPort) return "29500";
      return std::nullopt;
    });
  };
  EXPECT_TRUE(share(std::nullopt).share_gpus);
  EXPECT_TRUE(share("on").share_gpus);
  EXPECT_FALSE(share("off").share_gpus);
  EXPECT_THROW((void)share("auto"), EnvironmentError);
}

TEST(CommonVersion, IsTheHighestThatBothSpeak) {
  EXPECT_EQ(common_version({1, 1}, {1, 1}), 1);
  EXPECT_EQ(common_version({1, 3}, {2, 5}), 3);
  EXPECT_EQ(common_version({2, 5}, {1, 3}), 3);
  EXPECT_EQ(common_version({1, 1}, {2, 3}), std::nullopt);
  EXPECT_EQ(common_version({4, 4}, {2, 3}), std::nullopt);
}

TEST(Environment, ARankWithALifelineLearnsOfItsMasterOverIt) {
  const RankEnvironment environment = read({{"RANK", "1"},
                                            {"WORLD_SIZE", "2"},
                                            {"LOCAL_RANK", "1"},
                                            {"MASTER_ADDR", "of torchrun"},
                                            {"MASTER_PORT", "29500"},
                                            {"CP_POOL_LIFELINE", "10.0.0.1:4711"}});
  EXPECT_EQ(environment.master_addr, "");
  EXPECT_EQ(environment.master_port, 0);
}

}  // namespace
}  // namespace cp_pool::protocol
