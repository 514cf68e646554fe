#include "driver/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

Order order(std::string_view text) {
  return parse_order(text).value();
}

TEST(Order, IsReadFromItsName) {
  EXPECT_EQ(order("listed"), Order{});
  EXPECT_EQ(order("reverse").kind, Order::Kind::reverse);
  EXPECT_EQ(order("shuffle"), (Order{Order::Kind::shuffle, 1234}));
  EXPECT_EQ(order("shuffle:7"), (Order{Order::Kind::shuffle, 7}));
  for (const char* bad : {"", "random", "shuffle:", "shuffle:x", "shuffle:-1", "reverse:1", "listed "}) {
    EXPECT_EQ(parse_order(bad), std::nullopt) << bad;
  }
}

TEST(Order, ListsAndReverses) {
  EXPECT_THAT(indices_in_order(3, order("listed")), ElementsAre(0, 1, 2));
  EXPECT_THAT(indices_in_order(3, order("reverse")), ElementsAre(2, 1, 0));
  EXPECT_THAT(indices_in_order(0, order("shuffle")), IsEmpty());
}

TEST(Order, ShufflesByItsSeedAlone) {
  EXPECT_THAT(indices_in_order(4, order("shuffle:1")), UnorderedElementsAre(0, 1, 2, 3));
  EXPECT_EQ(indices_in_order(100, order("shuffle:1")), indices_in_order(100, order("shuffle:1")));
  EXPECT_NE(indices_in_order(100, order("shuffle:1")), indices_in_order(100, order("shuffle:2")));
  EXPECT_NE(indices_in_order(100, order("shuffle:1")), indices_in_order(100, order("listed")));
}

}  // namespace
}  // namespace cp_pool
