#include "driver/cli/select/order.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using Indices = std::vector<std::size_t>;

Indices indices(const char* text, std::size_t count) {
  return ordered_indices(count, parse_order(text).value());
}

TEST(Order, ListedAndReverseAreWhatTheySay) {
  EXPECT_EQ(indices("listed", 4), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(indices("reverse", 4), (Indices{3, 2, 1, 0}));
  EXPECT_EQ(indices("reverse", 0), Indices{});
}

TEST(Order, AShuffleHoldsEverythingAndItsSeedGivesTheSameOrderAgain) {
  const Indices order = indices("shuffle:7", 50);
  EXPECT_EQ(order, indices("shuffle:7", 50));
  EXPECT_NE(order, indices("shuffle:8", 50));
  EXPECT_NE(order, indices("listed", 50));
  Indices sorted = order;
  std::ranges::sort(sorted);
  EXPECT_EQ(sorted, indices("listed", 50));
  EXPECT_EQ(indices("shuffle:7", 5), (Indices{1, 3, 4, 2, 0}));  // the same on every machine
}

TEST(Order, AShuffleWithoutASeedTellsTheOneItGot) {
  Order order = parse_order("shuffle").value();
  const std::string text = fix_seed(order);
  EXPECT_THAT(text, ::testing::StartsWith("shuffle:"));
  EXPECT_EQ(ordered_indices(50, order), ordered_indices(50, parse_order(text).value()));
}

TEST(Order, OfAHistoryNamesItsFile) {
  Order order = parse_order("history:runs/last.jsonl").value();
  EXPECT_EQ(order.kind, Order::Kind::history);
  EXPECT_EQ(order.events, "runs/last.jsonl");
  EXPECT_EQ(fix_seed(order), "history:runs/last.jsonl");
  order = parse_order("history").value();
  EXPECT_EQ(order.kind, Order::Kind::history);
  EXPECT_EQ(fix_seed(order), "history");
}

TEST(Order, RefusesEverythingElse) {
  for (const char* text :
       {"", "history:", "random", "shuffle:", "shuffle:x", "shuffle:-1", "shuffle:1 ", "reverse:1"}) {
    EXPECT_FALSE(parse_order(text)) << text;
  }
}

}  // namespace
}  // namespace cp_pool
