#include <map>

#include <gmock/gmock.h>

#include "driver/ranks/launcher.h"

namespace cp_pool {
namespace {

using namespace ::testing;

VariableLookup lookup_in(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(Allocation, HostsAreExpandedAsSlurmWritesThem) {
  EXPECT_THAT(expand_hosts("one"), ElementsAre("one"));
  EXPECT_THAT(expand_hosts("n[1-3,07],gpu-a"), ElementsAre("n1", "n2", "n3", "n07", "gpu-a"));
  EXPECT_THAT(expand_hosts("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(expand_hosts("r[1-2]n[1,3]x"), ElementsAre("r1n1x", "r1n3x", "r2n1x", "r2n3x"));
}

TEST(Allocation, ListsThatMakeNoSenseAreRefused) {
  for (const char* const list : {"", "a,,b", "n[1-", "n]1[", "n[2-1]", "n[x]", "n[[1]]", "n[]", "n[1-999999999]"}) {
    EXPECT_THROW(expand_hosts(list), std::invalid_argument) << list;
  }
  for (const char* const list : {"", "x", "2(x3", "2(x999999999)", "-1"}) {
    EXPECT_THROW(expand_counts(list), std::invalid_argument) << list;
  }
}

TEST(Allocation, CountsAreExpanded) {
  EXPECT_THAT(expand_counts("2(x3),1"), ElementsAre(2, 2, 2, 1));
}

TEST(Allocation, SlotsAreCpusOrGpus) {
  const VariableLookup lookup =
      lookup_in({{"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_JOB_CPUS_PER_NODE", "16,8"}, {"SLURM_GPUS_ON_NODE", "4"}});
  EXPECT_THAT(slurm_allocation(lookup, "cpu"), ElementsAre(HostShare{"n1", 16}, HostShare{"n2", 8}));
  EXPECT_THAT(slurm_allocation(lookup, "cuda"), ElementsAre(HostShare{"n1", 4}, HostShare{"n2", 4}));
  EXPECT_THAT(slurm_allocation(lookup_in({}), "cpu"), IsEmpty());
}

TEST(Allocation, TasksThatWereAskedForAreTheSlots) {
  std::map<std::string, std::string> variables{
      {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_JOB_CPUS_PER_NODE", "16(x2)"}, {"SLURM_TASKS_PER_NODE", "1(x2)"}};
  EXPECT_THAT(slurm_allocation(lookup_in(variables), "cpu"), ElementsAre(HostShare{"n1", 16}, HostShare{"n2", 16}));
  variables["SLURM_NTASKS"] = "2";
  EXPECT_THAT(slurm_allocation(lookup_in(variables), "cpu"), ElementsAre(HostShare{"n1", 1}, HostShare{"n2", 1}));
}

TEST(Allocation, AHostfileNamesHostsAndSlots) {
  EXPECT_THAT(hosts_of_hostfile("# mine\nn1 slots=4 max_slots=8\n\n  n2\t# one\nn3 slots=2"),
              ElementsAre(HostShare{"n1", 4}, HostShare{"n2", 1}, HostShare{"n3", 2}));
  EXPECT_THROW(hosts_of_hostfile("n1 slots=many"), std::invalid_argument);
}

TEST(Allocation, AVariableThatCannotBeReadIsNamed) {
  const auto is_named = [](const char* text) { return ::testing::ThrowsMessage<AllocationError>(HasSubstr(text)); };
  EXPECT_THAT(
      [] { slurm_allocation(lookup_in({{"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_JOB_CPUS_PER_NODE", "4"}}), "cpu"); },
      is_named("SLURM_JOB_CPUS_PER_NODE=\"4\" does not fit"));
  EXPECT_THAT([] { slurm_allocation(lookup_in({{"SLURM_JOB_NODELIST", "n[1"}}), "cpu"); },
              is_named("SLURM_JOB_NODELIST=\"n[1\""));
}

}  // namespace
}  // namespace cp_pool
