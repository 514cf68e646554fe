#include "cp_core/lru_cache.h"

#include <string>

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using Words = LruCache<int, std::string>;

TEST(LruCache, FindsWhatItKeeps) {
  Words words(10);
  words.keep(1, "one", 3);
  ASSERT_NE(words.find(1), nullptr);
  EXPECT_EQ(*words.find(1), "one");
  EXPECT_EQ(words.find(2), nullptr);
}

TEST(LruCache, ForgetsWhatWasNotUsedForLongest) {
  Words words(3);
  for (const int key : {1, 2, 3}) words.keep(key, "", 1);
  (void)words.find(1);
  EXPECT_TRUE(words.contains(2)) << "to ask is not to use";
  words.keep(4, "", 2);
  EXPECT_TRUE(words.contains(1));
  EXPECT_FALSE(words.contains(2));
  EXPECT_FALSE(words.contains(3));
  EXPECT_EQ(words.weight(), 3U);
}

TEST(LruCache, ReplacesTheValueOfAnEqualKey) {
  Words words(4);
  words.keep(1, "one", 3);
  words.keep(1, "eins", 4);
  EXPECT_EQ(*words.find(1), "eins");
  EXPECT_EQ(words.weight(), 4U);
}

TEST(LruCache, DoesNotKeepWhatIsHeavierThanItsCapacity) {
  Words words(4);
  words.keep(1, "one", 2);
  words.keep(2, "two", 5);
  EXPECT_FALSE(words.contains(2));
  EXPECT_TRUE(words.contains(1)) << "nothing had to make room";
  words.keep(1, "one", 5);
  EXPECT_FALSE(words.contains(1)) << "an old value is not kept for a new one";
  EXPECT_EQ(words.weight(), 0U);
}

TEST(LruCache, ForgetsWhatItIsToldTo) {
  Words words(4);
  words.keep(1, "one", 2);
  words.forget(1);
  words.forget(7);
  EXPECT_EQ(words.find(1), nullptr);
  words.keep(2, "two", 4);
  words.clear();
  EXPECT_EQ(words.weight(), 0U);
  EXPECT_EQ(words.find(2), nullptr);
}

}  // namespace
}  // namespace cp_pool
