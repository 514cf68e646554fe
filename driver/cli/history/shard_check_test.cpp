#include "driver/cli/history/shard_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/cli/select/shard.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<std::string> kAll{"a", "b", "c", "d"};

RunStarted shard(std::size_t index, std::vector<std::string> ids, const std::string& hash = "h") {
  RunStarted run = test::run_started(ids.size());
  run.title = "quick, shard " + std::to_string(index) + "/3";
  run.shard = ShardOfRun{.index = index, .count = 3, .cases = kAll.size(), .ids = hash_of_all(kAll), .hash = hash};
  run.ids = std::move(ids);
  return run;
}

TEST(ShardCheck, FindsNothingMissingInAllShardsWhateverTheirOrder) {
  EXPECT_THAT(missing_of_shards({shard(1, {"a", "c"}), shard(2, {"b"}), shard(3, {"d"})}), IsEmpty());
  EXPECT_THAT(missing_of_shards({shard(3, {"d"}), shard(1, {"c", "a"}), shard(2, {"b"})}), IsEmpty());
  EXPECT_THAT(missing_of_shards({test::run_started(7)}), IsEmpty()) << "no shard";
}

TEST(ShardCheck, AcceptsAShardThatWasRunAgainAndOneThatIsEmpty) {
  EXPECT_THAT(missing_of_shards({shard(1, {"a", "c"}), shard(2, {"b"}), shard(2, {"b"}), shard(3, {"d"})}), IsEmpty());
  EXPECT_THAT(missing_of_shards({shard(1, {"a", "c"}), shard(2, {"b", "d"})}), IsEmpty());
}

TEST(ShardCheck, NamesMissingShards) {
  EXPECT_THAT(missing_of_shards({shard(2, {"b"})}),
              ElementsAre("shards 1, 3 of 3 of quick are missing: there are 1 of 4 cases"));
  EXPECT_THAT(missing_of_shards({shard(1, {"a", "c"}), shard(3, {"d"})}),
              ElementsAre("shard 2 of 3 of quick is missing: there are 3 of 4 cases"));
}

TEST(ShardCheck, SeesACaseThatNoShardHas) {
  EXPECT_THAT(missing_of_shards({shard(1, {"a"}), shard(2, {"b"}), shard(3, {"d"})}),
              ElementsAre("the shards of quick do not add up: there are 3 of 4 cases"));
}

TEST(ShardCheck, SeesACaseOfAnotherShard) {
  EXPECT_THAT(missing_of_shards({shard(1, {"a", "b"}), shard(2, {"b"}), shard(3, {"d"})}),
              ElementsAre("the shards of quick do not add up: there are 3 of 4 cases, 1 in several shards"));
  EXPECT_THAT(missing_of_shards({shard(1, {"a", "c", "b"}), shard(2, {"b"}), shard(3, {"d"})}),
              ElementsAre("the shards of quick do not add up: there are 4 of 4 cases, 1 in several shards"));
}

TEST(ShardCheck, SeesACaseThatWasNotSelected) {
  EXPECT_THAT(
      missing_of_shards({shard(1, {"a", "x"}), shard(2, {"b"}), shard(3, {"d"})}),
      ElementsAre("the shards of quick do not add up: they have cases that were not selected, and lack as many"));
}

TEST(ShardCheck, SeesThatTheSelectionsDiffer) {
  EXPECT_THAT(missing_of_shards({shard(1, {"a", "c"}), shard(2, {"b"}, "of other fields"), shard(3, {"d"})}),
              ElementsAre("shard 2 of 3 of quick is missing: there are 3 of 4 cases (shard 2 is of another selection)",
                          "shards 1, 3 of 3 of quick are missing: there are 1 of 4 cases (shards 1, 3 are of another "
                          "selection)"));
}

TEST(ShardCheck, KeepsDevicesSizesAndImplementationsApart) {
  const auto on_cuda = [](RunStarted run) {
    run.device = "cuda";
    return run;
  };
  const RunStarted one = shard(1, {"a", "c"});
  const RunStarted two = shard(2, {"b", "d"});
  EXPECT_THAT(missing_of_shards({one, two, on_cuda(one), on_cuda(two)}), IsEmpty());
  EXPECT_EQ(missing_of_shards({one, on_cuda(two)}).size(), 2U);
}

}  // namespace
}  // namespace cp_pool
