#include "driver/launcher/placing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using testing::ElementsAre;

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

}  // namespace
}  // namespace cp_pool
